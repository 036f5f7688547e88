//! What can go wrong between a text and its ids.

use crate::error::Hint;
use std::fmt;

static INSTALL: Hint = Hint::new("install it (`apt install espeak-ng`), or train with `data.tokenizer: characters`");
static LIST_VOICES: Hint = Hint::new("`espeak-ng --voices` lists them; or take characters");
static TAKE_CHARACTERS: Hint = Hint::new("`data.tokenizer: characters`");

/// Why `espeak-ng` gives no phonemes. Answers are kept and handed out again, so the hints are not part of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The program is not installed.
    Absent,
    NoVoice {
        language: String,
    },
    /// A voice is there, but it spells the language's characters in English.
    Unreadable {
        language: String,
    },
    /// The program was there and failed: what happened.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("espeak-ng: ")?;
        match self {
            Error::Absent => f.write_str("not found, and the tokenizer needs it for phonemes"),
            Error::NoVoice { language } => write!(f, "no voice for the language `{language}`"),
            Error::Unreadable { language } => {
                let why = "does not read that language's characters, it names them in English";
                write!(f, "its voice for `{language}` {why}")
            }
            Error::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Absent => Some(&INSTALL),
            Error::NoVoice { .. } => Some(&LIST_VOICES),
            Error::Unreadable { .. } => Some(&TAKE_CHARACTERS),
            Error::Failed(_) => None,
        }
    }
}
