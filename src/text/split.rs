//! Long text in pieces that a voice can say in one breath.

use super::language::Language;

/// How a piece ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Between words, or inside one: it had to end somewhere.
    Cut,
    Clause,
    Sentence,
    Paragraph,
}

/// What is said in one piece.
#[derive(Debug, PartialEq)]
pub struct Piece<'a> {
    pub text: &'a str,
    pub end: End,
    /// Bytes of the rest that it takes, white space around it included.
    pub len: usize,
}

#[derive(Clone)]
pub struct Splitter {
    language: Option<&'static Language>,
    most: usize,
}

impl Splitter {
    pub fn new(language: &str, most: usize) -> Self {
        Splitter { language: Language::of(language), most }
    }

    /// One for pieces half as long.
    pub fn halved(&self) -> Self {
        Splitter { most: (self.most / 2).max(1), ..self.clone() }
    }

    pub fn next<'a>(&self, rest: &'a str, _early: bool) -> Option<Piece<'a>> {
        let _ = self.language;
        let body = rest.trim();
        (!body.is_empty()).then_some(Piece { text: body, end: End::Sentence, len: rest.len() })
    }
}
