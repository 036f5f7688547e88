//! What can be wrong with a config, and where it was said.

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: cannot read the config: {cause}", path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// Broken YAML, an unknown key, a wrong type, a value out of range, or keys that contradict each other.
    #[error("{origin}: {what}")]
    Invalid { origin: Origin, what: String },
    #[error("the key table and the config structs disagree: {0}")]
    Table(String),
}

/// Where a value comes from; a later variant wins over an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Preset,
    /// Without a line where the parser could not name one.
    File {
        path: PathBuf,
        line: Option<u64>,
    },
    /// A command-line flag, as the user types it: `--batch-size`.
    Flag(String),
}

impl Error {
    pub(super) fn invalid(origin: Origin, what: impl Into<String>) -> Self {
        Self::Invalid { origin, what: what.into() }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Table(error.to_string())
    }
}

impl Origin {
    pub(super) fn line(path: &Path, line: u64) -> Self {
        Self::File { path: path.to_owned(), line: Some(line) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset => f.write_str("built-in defaults"),
            Self::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::Flag(name) => f.write_str(name),
        }
    }
}
