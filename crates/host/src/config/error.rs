//! What can be wrong with a config, and where it was said.

use crate::error::Hint;
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: cannot read the config", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// Broken YAML, an unknown key, a wrong type, a value out of range, or keys that contradict each other.
    #[error("{origin}: {wrong}")]
    Invalid {
        origin: Origin,
        #[source]
        wrong: Box<Wrong>,
    },
}

/// A fact about one or more values, and what to do about it: behind the fact in the same line, or as a hint.
#[derive(Debug, thiserror::Error)]
#[error("{fact}{}", remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default())]
pub struct Wrong {
    pub fact: String,
    remedy: Option<String>,
    #[source]
    hint: Option<Hint>,
}

/// Where a value comes from; a later variant wins over an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Preset,
    /// A file, without a line where the parser could not name one.
    File {
        path: PathBuf,
        line: Option<u64>,
    },
    /// A command-line flag, as the user types it: `--batch-size`.
    Flag(String),
}

impl Error {
    pub(super) fn invalid(origin: Origin, wrong: impl Into<Wrong>) -> Self {
        Self::Invalid { origin, wrong: Box::new(wrong.into()) }
    }
}

impl Wrong {
    pub(super) fn new(fact: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { fact: fact.into(), remedy: Some(remedy.into()), hint: None }
    }

    pub(super) fn accepted(fact: impl Into<String>, accepted: impl fmt::Display) -> Self {
        Self::new(fact, format!("accepted: {accepted}"))
    }

    pub(super) fn hinted(fact: impl Into<String>, hint: &'static str) -> Self {
        Self { hint: Some(Hint::new(hint)), ..Self::from(fact.into()) }
    }

    /// What to do about it, where there is something to say.
    pub fn advice(&self) -> Option<String> {
        self.remedy.clone().or_else(|| self.hint.as_ref().map(Hint::to_string))
    }
}

impl From<String> for Wrong {
    fn from(fact: String) -> Self {
        Self { fact, remedy: None, hint: None }
    }
}

impl Origin {
    pub(super) fn line(path: &Path, line: impl Into<Option<u64>>) -> Self {
        Self::File { path: path.to_owned(), line: line.into() }
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
