//! Texts to ids, with a language tag in front: 0 is padding, 1 unknown. Characters: tags, then the corpus's characters.
//! Phonemes: the fixed vocabulary, then tags; behind each phoneme a blank, so that it has two states (Kim et al. 2020,
//! Glow-TTS): a sound and how it goes over into the next one. Word error of one voice: 6.1 and 7.7 % with it, 10.7 and
//! 12.7 % without.

use super::detect::{Detector, detect};
use super::error::Error;
use super::normalize::{self, normalize};
use super::phonemes::{self, POOL};
use crate::config::TokenizerKind;
use crate::corpus::Utterance;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Characters that every vocabulary of them holds, so that a voice fitted to a few sentences can be asked for others.
const BASE: &str = "abcdefghijklmnopqrstuvwxyz !\"'(),-.:;?";
/// Punctuation between words, in the scripts that have their own.
const BREAKS: &str = "!(),.:;?…—،؛؟۔।、。！，：；？";
/// Id of the blank, which is padding's: both mean that nothing is said here.
const BLANK: i32 = 0;
const UNKNOWN: i32 = 1;
/// Id of the first symbol.
const FIRST: usize = 2;
const AUTO: &str = "auto";
const DEFAULT_LANGUAGE: &str = "en";
/// Share of a corpus below which a detected language is left out: it is a mistake of the detector more often than a
/// language.
const LEAST_SHARE: f64 = 0.02;

/// Turns texts into ids and names what they stand for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Tokenizer {
    languages: Vec<String>,
    /// The language that is taken where none is named and none can be detected: the corpus's most frequent.
    usual: String,
    symbols: Symbols,
    /// Why these symbols, where they were chosen and not asked for; not stored.
    why: Option<String>,
    detector: Arc<Detector>,
}

#[derive(Clone, Debug, PartialEq)]
enum Symbols {
    Characters(Vec<char>),
    Phonemes { espeak_ng: String },
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        (&self.languages, &self.usual, &self.symbols) == (&other.languages, &other.usual, &other.symbols)
    }
}

impl Tokenizer {
    /// Fits a tokenizer on the whole corpus, before any split: the vocabulary is part of every cached feature's key.
    /// `language` is that of utterances that name none, or `auto`.
    pub fn of_corpus(utterances: &[Utterance], language: &str, kind: TokenizerKind) -> Result<Self, Error> {
        let texts = || utterances.iter().map(|u| (u.text.as_str(), u.language.as_deref().unwrap_or(language)));
        if kind == TokenizerKind::Characters {
            return Ok(Self::fit(texts()));
        }
        match (Self::phonemes(texts()), kind) {
            (Ok(tokenizer), _) => Ok(tokenizer),
            (Err(error), TokenizerKind::Phonemes) => Err(error),
            (Err(error), _) => Ok(Self { why: Some(error.to_string()), ..Self::fit(texts()) }),
        }
    }

    /// Fits a tokenizer of characters: learns the letters and languages of a corpus from its (text, language) pairs.
    pub fn fit<'a>(texts: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Self {
        let (languages, usual) = languages(texts.clone());
        let mut fitted = Self::new(languages, usual, Symbols::Characters(Vec::new()));
        let mut characters: BTreeSet<char> = BASE.chars().collect();
        for (text, language) in texts {
            characters.extend(normalize(text, fitted.language(text, language)).chars());
        }
        fitted.symbols = Symbols::Characters(characters.into_iter().collect());
        fitted
    }

    fn phonemes<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let espeak_ng = POOL.version()?;
        let (languages, usual) = languages(texts);
        languages.iter().try_for_each(|language| POOL.check(language))?;
        Ok(Self::new(languages, usual, Symbols::Phonemes { espeak_ng }))
    }

    fn new(languages: Vec<String>, usual: String, symbols: Symbols) -> Self {
        let codes: Vec<&str> = languages.iter().map(String::as_str).collect();
        let detector = Arc::new(Detector::of(&codes));
        Self { languages, usual, symbols, why: None, detector }
    }

    /// Ids of a text: those of `encode_normalized`. `language` may be `auto`.
    pub fn encode(&self, text: &str, language: &str) -> Result<Vec<i32>, Error> {
        let language = self.language(text, language);
        self.encode_normalized(&normalize(text, language), language)
    }

    /// Ids of a text that `normalize` has been through: the language tag, then a token for each character or phoneme.
    /// Threads may share a tokenizer: each that asks has a process of its own.
    pub fn encode_normalized(&self, plain: &str, language: &str) -> Result<Vec<i32>, Error> {
        let tag = self.languages.binary_search_by(|known| known.as_str().cmp(language));
        let mut ids = Vec::with_capacity(1 + plain.len());
        ids.push(tag.map_or(UNKNOWN, |index| (self.first_tag() + index) as i32));
        match &self.symbols {
            Symbols::Characters(_) => ids.extend(plain.chars().map(|letter| self.id(letter))),
            Symbols::Phonemes { .. } => {
                let positions = phonemes::read(plain, language, &POOL)?;
                let phoneme = |at: Option<usize>| at.map_or(UNKNOWN, |at| (FIRST + at) as i32);
                ids.push(BLANK);
                ids.extend(positions.into_iter().flat_map(|at| [phoneme(at), BLANK]));
            }
        }
        Ok(ids)
    }

    /// The code that a text is read by: `auto` is detected among the languages this tokenizer knows.
    pub fn language<'a>(&'a self, text: &str, language: &'a str) -> &'a str {
        match language {
            "" => &self.usual,
            AUTO => {
                let found = self.detector.detect(text);
                let known = |code: &str| self.languages.iter().find(|known| known.split('-').next() == Some(code));
                found.and_then(known).unwrap_or(&self.usual)
            }
            named => named,
        }
    }

    /// Number of ids.
    pub fn vocab_size(&self) -> usize {
        let symbols = match &self.symbols {
            Symbols::Characters(characters) => characters.len(),
            Symbols::Phonemes { .. } => *phonemes::COUNT,
        };
        FIRST + self.languages.len() + symbols
    }

    /// What each id stands for, in the order of ids: equal names in two tokenizers mean the same.
    pub fn names(&self) -> Vec<String> {
        let tags = self.languages.iter().map(|language| format!("<{language}>"));
        let first = if self.has_blanks() { "<blank>" } else { "<padding>" };
        let mut names = vec![first.to_owned(), "<unknown>".to_owned()];
        match &self.symbols {
            Symbols::Characters(characters) => names.extend(tags.chain(characters.iter().map(char::to_string))),
            Symbols::Phonemes { .. } => {
                names.extend((0..*phonemes::COUNT).map(|phoneme| format!("<phoneme {phoneme}>")).chain(tags));
            }
        }
        names
    }

    /// A tokenizer that reads all that either reads; `None` where one reads characters and the other phonemes.
    pub fn joined(&self, other: &Tokenizer) -> Option<Tokenizer> {
        let symbols = match (&self.symbols, &other.symbols) {
            (Symbols::Characters(a), Symbols::Characters(b)) => {
                let all: BTreeSet<char> = a.iter().chain(b).copied().collect();
                Symbols::Characters(all.into_iter().collect())
            }
            (Symbols::Phonemes { .. }, Symbols::Phonemes { .. }) => self.symbols.clone(),
            _ => return None,
        };
        let languages: BTreeSet<String> = self.languages.iter().chain(&other.languages).cloned().collect();
        Some(Self { why: self.why.clone(), ..Self::new(languages.into_iter().collect(), self.usual.clone(), symbols) })
    }

    /// Codes of the languages that have a tag.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// Ids of spaces and punctuation, sorted: behind them a text may be cut.
    pub fn breaks(&self) -> Vec<i32> {
        match &self.symbols {
            Symbols::Characters(characters) => {
                let breaks = characters.iter().filter(|letter| letter.is_whitespace() || BREAKS.contains(**letter));
                breaks.map(|&letter| self.id(letter)).collect()
            }
            Symbols::Phonemes { .. } => phonemes::breaks().map(|at| (FIRST + at) as i32).collect(),
        }
    }

    /// The characters of a text, once it is normalised, that this vocabulary lacks, each once. Phonemes lack none.
    pub fn unknown(&self, text: &str, language: &str) -> Vec<char> {
        match &self.symbols {
            Symbols::Characters(_) => self.unknown_normalized(&normalize(text, self.language(text, language))),
            Symbols::Phonemes { .. } => Vec::new(),
        }
    }

    /// The characters of a normalised text that this vocabulary lacks, each once. Phonemes lack none.
    pub fn unknown_normalized(&self, plain: &str) -> Vec<char> {
        let Symbols::Characters(characters) = &self.symbols else { return Vec::new() };
        let letters: BTreeSet<char> = plain.chars().collect();
        letters.into_iter().filter(|letter| characters.binary_search(letter).is_err()).collect()
    }

    /// Says which symbols are read, and why where they were chosen: "characters (espeak-ng: not found, …)".
    pub fn describe(&self) -> String {
        match (&self.symbols, &self.why) {
            (Symbols::Phonemes { espeak_ng }, _) => format!("phonemes, by espeak-ng {espeak_ng}"),
            (Symbols::Characters(_), Some(why)) => format!("characters ({why})"),
            (Symbols::Characters(_), None) => "characters".into(),
        }
    }

    /// Checks a tokenizer out of a checkpoint: an error where it cannot work here, a note where it may work
    /// differently.
    pub fn check(&self) -> Result<Option<String>, Error> {
        let Symbols::Phonemes { espeak_ng } = &self.symbols else { return Ok(None) };
        self.languages.iter().try_for_each(|language| POOL.check(language))?;
        let installed = POOL.version()?;
        let note = format!("the voice learned phonemes of espeak-ng {espeak_ng}; {installed} is installed");
        Ok((installed != *espeak_ng).then_some(note))
    }

    /// A hash that is equal for two tokenizers exactly when they encode every text alike: phonemes are those of the
    /// installed program.
    pub fn fingerprint(&self) -> String {
        let installed = match &self.symbols {
            Symbols::Phonemes { espeak_ng } => POOL.version().unwrap_or_else(|_| espeak_ng.clone()),
            Symbols::Characters(_) => String::new(),
        };
        let symbols = match &self.symbols {
            Symbols::Characters(characters) => Some(characters),
            Symbols::Phonemes { .. } => None,
        };
        let content =
            (normalize::VERSION, &self.languages, &self.usual, symbols, installed, *phonemes::COUNT, self.states());
        blake3::hash(format!("{content:?}").as_bytes()).to_hex()[..32].to_string()
    }

    fn has_blanks(&self) -> bool {
        matches!(self.symbols, Symbols::Phonemes { .. })
    }

    /// Tokens that a symbol of the text becomes.
    pub fn states(&self) -> usize {
        1 + usize::from(self.has_blanks())
    }

    fn first_tag(&self) -> usize {
        match &self.symbols {
            Symbols::Characters(_) => FIRST,
            Symbols::Phonemes { .. } => FIRST + *phonemes::COUNT,
        }
    }

    fn id(&self, letter: char) -> i32 {
        let Symbols::Characters(characters) = &self.symbols else { return UNKNOWN };
        let first = FIRST + self.languages.len();
        characters.binary_search(&letter).map_or(UNKNOWN, |index| (first + index) as i32)
    }
}

/// The languages that are named, and those detected often enough; and the most frequent of all.
fn languages<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> (Vec<String>, String) {
    let (mut named, mut detected) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for (text, language) in texts {
        match language {
            AUTO => detect(text).into_iter().for_each(|code| *detected.entry(code).or_default() += 1),
            "" => *named.entry(DEFAULT_LANGUAGE).or_default() += 1,
            code => *named.entry(code).or_default() += 1,
        }
    }
    let all: usize = detected.values().sum();
    detected.retain(|_, count| *count as f64 >= LEAST_SHARE * all as f64);
    for (code, count) in detected {
        *named.entry(code).or_default() += count;
    }
    let usual = named.iter().max_by_key(|(_, count)| **count).map_or(DEFAULT_LANGUAGE, |(code, _)| code).to_owned();
    named.entry(DEFAULT_LANGUAGE).or_default();
    let known = named.iter().filter(|(code, count)| **count > 0 || **code == usual);
    (known.map(|(code, _)| (*code).to_owned()).collect(), usual)
}

/// A tokenizer as a file has it: it may be out of order, and then ids would silently mean other letters.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Stored {
    Characters { languages: Vec<String>, usual: String, characters: Vec<char> },
    Phonemes { languages: Vec<String>, usual: String, espeak_ng: String },
}

impl TryFrom<Stored> for Tokenizer {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let (languages, usual, symbols) = match stored {
            Stored::Characters { languages, usual, characters } => (languages, usual, Symbols::Characters(characters)),
            Stored::Phonemes { languages, usual, espeak_ng } => (languages, usual, Symbols::Phonemes { espeak_ng }),
        };
        let sorted = match &symbols {
            Symbols::Characters(characters) => characters.is_sorted_by(|a, b| a < b),
            Symbols::Phonemes { .. } => true,
        };
        if !sorted || !languages.is_sorted_by(|a, b| a < b) {
            return Err("tokenizer: languages and characters must be sorted, each once");
        }
        Ok(Self::new(languages, usual, symbols))
    }
}

impl From<Tokenizer> for Stored {
    fn from(Tokenizer { languages, usual, symbols, .. }: Tokenizer) -> Self {
        match symbols {
            Symbols::Characters(characters) => Stored::Characters { languages, usual, characters },
            Symbols::Phonemes { espeak_ng } => Stored::Phonemes { languages, usual, espeak_ng },
        }
    }
}

#[cfg(test)]
mod tests;
