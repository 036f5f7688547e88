//! Errors for people: facts, from the outside in, and what to do next.
//!
//! A [`Hint`] is a link of an error's chain that says what to do instead of what is wrong. Typed errors carry one as
//! their `#[source]`; elsewhere [`hinted`] makes an error of both, and [`WithHint::hint`] adds one to an error that is
//! there. Whoever shows an error takes the chain apart with [`Explained::of`]; nobody looks into texts.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

type Cause = Box<dyn Error + Send + Sync>;

/// What to do about the error that this is a link of.
#[derive(Debug)]
pub struct Hint {
    text: Cow<'static, str>,
    cause: Option<Cause>,
}

impl Hint {
    pub const fn new(text: &'static str) -> Self {
        Hint { text: Cow::Borrowed(text), cause: None }
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Hint { text: text.into(), cause: None }
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Hint::new(text)
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Hint {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// Whoever started the program asked it to stop, and there is nothing to show yet.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; nothing was written")
    }
}

impl Error for Interrupted {}

/// An error of a fact and what to do about it.
pub fn hinted(fact: impl fmt::Display, hint: impl Into<Hint>) -> anyhow::Error {
    anyhow::Error::new(hint.into()).context(fact.to_string())
}

/// Adds what to do to an error that is there.
pub trait WithHint<T> {
    fn hint(self, text: impl Into<Cow<'static, str>>) -> Result<T, Hint>;
}

impl<T, E: Into<Cause>> WithHint<T> for Result<T, E> {
    fn hint(self, text: impl Into<Cow<'static, str>>) -> Result<T, Hint> {
        self.map_err(|cause| Hint { text: text.into(), cause: Some(cause.into()) })
    }
}

/// An error taken apart, for whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The facts of the chain, from the outside in.
    pub fact: String,
    pub hints: Vec<String>,
}

impl Explained {
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let (mut facts, mut hints) = (Vec::<String>::new(), Vec::new());
        let mut next = Some(error);
        while let Some(cause) = next {
            next = cause.source();
            let text = cause.to_string();
            if cause.is::<Hint>() {
                hints.push(text);
            } else if !facts.iter().any(|said| said.contains(&text)) {
                // A wrapper that repeats its cause word for word says nothing new.
                facts.push(text);
            }
        }
        Explained { fact: facts.join(": "), hints }
    }

    /// All hints in one line; empty where there is none.
    pub fn advice(&self) -> String {
        self.hints.join("; ")
    }
}

impl fmt::Display for Explained {
    /// Facts on the first line, then each hint on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)?;
        self.hints.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("clips/a.wav: damaged")]
    struct Damaged(#[source] Hint);

    #[test]
    fn hints_are_told_from_facts_wherever_they_stand() {
        let typed = anyhow::Error::new(Damaged(Hint::new("get it again"))).context("the corpus cannot be read");
        let explained = Explained::of(typed.as_ref());
        assert_eq!(explained.to_string(), "the corpus cannot be read: clips/a.wav: damaged\nhint: get it again");
        let made = hinted("no corpus was named", format!("--{} DIR", "data"));
        assert_eq!(Explained::of(made.as_ref()).to_string(), "no corpus was named\nhint: --data DIR");
        let added: Result<(), _> =
            Err(io::Error::other("disk full")).hint("free some space").context("out: not written");
        let explained = Explained::of(added.unwrap_err().as_ref()).to_string();
        assert_eq!(explained, "out: not written: disk full\nhint: free some space");
    }

    #[test]
    fn a_wrapper_that_repeats_its_cause_says_nothing_new() {
        let error = anyhow::anyhow!("disk full").context("out: disk full");
        assert_eq!(Explained::of(error.as_ref()), Explained { fact: "out: disk full".into(), hints: vec![] });
    }
}
