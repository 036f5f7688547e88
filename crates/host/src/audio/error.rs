//! What can be wrong with a recording, and with a file that holds one.

use crate::error::Hint;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

const READABLE: Hint = Hint::new("WAV, FLAC, MP3, OGG Vorbis and Opus are");

/// What is wrong with a recording, split by what one can do about it; [`FileError`] says which file it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Mend the path, the permissions or the disk.
    // The message is whole, so the cause is a field and not a link of the chain.
    #[error("{cause}")]
    Io { cause: io::Error },
    /// Convert the file.
    #[error("not a recording that can be read: {what}")]
    Unsupported {
        what: String,
        #[source]
        hint: Hint,
    },
    /// Get the file again.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Leave the clip out, or record it again: the file is whole, but no voice can learn from it.
    #[error("unusable: {0}")]
    Unusable(String),
    #[error("cannot resample from {from_hz} Hz to {to_hz} Hz: {what}")]
    Resample { from_hz: u32, to_hz: u32, what: String },
}

impl Error {
    pub(super) fn unsupported(what: &str) -> Self {
        Error::Unsupported { what: what.into(), hint: READABLE }
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Self {
        Error::Io { cause }
    }
}

/// An error, and the file that it is about.
#[derive(Debug)]
pub struct FileError {
    pub path: PathBuf,
    pub error: Error,
}

impl FileError {
    /// Adds the path to an error that does not know it.
    pub(super) fn at<E: Into<Error>>(path: &Path) -> impl FnOnce(E) -> FileError {
        move |error| FileError { path: path.into(), error: error.into() }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for FileError {
    /// The hint of the error, whose fact is part of this one's.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
