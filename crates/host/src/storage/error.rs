//! What can go wrong with an object. Texts are made of a status, a code and a cause; never of a request, whose address
//! and headers may hold a credential.

use crate::error::Hint;
use std::fmt;
use std::io;

/// What went wrong, split by what one can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such object, or no such bucket.
    Absent,
    /// The credentials do not allow it, or are not there.
    Refused,
    /// The object is another one than it was when it was looked at.
    Changed,
    /// What was asked for is not possible here.
    Unsupported,
    /// The server or the way to it failed, again and again.
    Unreachable,
    /// A file of this machine cannot be read or written.
    Io,
}

/// An object, what is wrong with it, and what to do.
#[derive(Debug)]
pub struct Error {
    pub name: String,
    pub fault: Fault,
    what: String,
    hint: Option<Hint>,
}

impl Error {
    pub(super) fn new(name: &str, fault: Fault, what: impl Into<String>) -> Self {
        Error { name: name.into(), fault, what: what.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn io(name: impl fmt::Display, cause: io::Error) -> Self {
        let fault = if cause.kind() == io::ErrorKind::NotFound { Fault::Absent } else { Fault::Io };
        Error::new(&name.to_string(), fault, cause.to_string())
    }

    /// What is wrong, without the name.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.hint.as_ref().map(|hint| hint as _)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error)
    }
}
