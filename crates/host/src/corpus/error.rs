//! What can be wrong with a row, and with a corpus.

use super::Format;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
    #[error("{}: not a corpus in the layout {format}\nhint: {hint}", path.display())]
    OtherFormat { path: PathBuf, format: Format, hint: &'static str },
    #[error("{}: several manifests: {}\nhint: name one instead of the folder", path.display(), names.join(", "))]
    Several { path: PathBuf, names: Vec<String> },
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{}: no rows\nhint: one line for each clip, `id|text`", path.display())]
    Empty { path: PathBuf },
    #[error("{}: none of its {} rows can be used; the first:\n{}", path.display(), problems.len(), problems[0])]
    NoUsableRow { path: PathBuf, problems: Vec<Problem> },
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Io { path: path.into(), cause }
}
