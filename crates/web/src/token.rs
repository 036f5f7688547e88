//! The bearer token: never a flag, because whoever lists processes would see it.

use anyhow::{Context, Result};
use axum::http::{HeaderMap, header};
use host::error::hinted;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::{env, fs};

const VARIABLE: &str = "MYXTTS_TOKEN";

/// The token that clients must send: of a file, or of the variable MYXTTS_TOKEN; none where neither is given.
pub fn read(file: Option<&Path>) -> Result<Option<String>> {
    let (token, place) = match file {
        Some(path) => (
            Some(fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?),
            path.display().to_string(),
        ),
        None => (env::var(VARIABLE).ok(), VARIABLE.to_owned()),
    };
    let Some(token) = token else { return Ok(None) };
    let token = token.trim();
    if token.is_empty() {
        return Err(hinted(format!("{place}: empty, and a token is wanted"), "`openssl rand -hex 32` makes one"));
    }
    Ok(Some(token.to_owned()))
}

/// A number that nobody guesses: of the keys that the system gives the hash tables of every process.
pub fn random() -> String {
    (0..2).map(|part: u8| format!("{:016x}", RandomState::new().hash_one(part))).collect()
}

/// Whether a request carries the token. Hashes are compared, in constant time: how long it takes says nothing about it.
pub fn carries(headers: &HeaderMap, token: &blake3::Hash) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
    given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && blake3::hash(given) == *token)
}
