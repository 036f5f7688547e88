//! What can be wrong with a row, and with a corpus.

use crate::config::CorpusFormat;
use crate::error::Hint;
use crate::storage;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A row of the metadata that was left out, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct RowProblem {
    /// Metadata file that the row stands in.
    pub file: PathBuf,
    /// Number of the row's line, or of a clip in its shard, counted from 1 as editors do; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong with the row.
    pub what: String,
}

impl fmt::Display for RowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.what),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.what),
        }
    }
}

/// Why nothing of a corpus could be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {what}", path.display())]
    Missing {
        path: PathBuf,
        what: &'static str,
        #[source]
        hint: Hint,
    },
    #[error("{}: not a corpus in the layout {format}", path.display())]
    OtherFormat {
        path: PathBuf,
        format: CorpusFormat,
        #[source]
        hint: Hint,
    },
    #[error("{}: several manifests: {}", path.display(), names.join(", "))]
    Several {
        path: PathBuf,
        names: Vec<String>,
        #[source]
        hint: Hint,
    },
    // Its message is whole, so the cause is a field and not a link of the chain.
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Storage(storage::Error),
    #[error("{}: no rows", path.display())]
    Empty {
        path: PathBuf,
        #[source]
        hint: Hint,
    },
    #[error("{}: none of its {} rows can be used; the first:\n{}", path.display(), problems.len(), problems[0])]
    NoUsableRow { path: PathBuf, problems: Vec<RowProblem> },
}

impl Error {
    pub(super) fn missing(path: &Path, what: &'static str, hint: &'static str) -> Self {
        Error::Missing { path: path.into(), what, hint: Hint::new(hint) }
    }

    /// Turns a failure of the system into an error that names the path it happened at.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Io { path: path.into(), cause }
    }
}
