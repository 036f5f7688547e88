//! Folders of recordings: metadata rows become utterances, rows that cannot be used become problems with file and line.

mod ljspeech;
pub mod sample;
mod split;

pub use ljspeech::read;
pub use split::split;

use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    pub id: String,
    pub audio: PathBuf,
    pub text: String,
    pub speaker: String,
    /// None where the metadata names none.
    pub language: Option<String>,
}

#[derive(Debug)]
pub struct Corpus {
    pub utterances: Vec<Utterance>,
    pub problems: Vec<Problem>,
}

/// A row that was left out, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub file: PathBuf,
    /// Counted from 1, as editors do.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Nothing could be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {what}\nhint: {hint}", path.display())]
    Missing { path: PathBuf, what: &'static str, hint: &'static str },
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{}: no rows\nhint: one line for each clip, `id|text`", path.display())]
    Empty { path: PathBuf },
    #[error("{}: none of its {} rows can be used; the first:\n{}", path.display(), problems.len(), problems[0])]
    NoUsableRow { path: PathBuf, problems: Vec<Problem> },
}
