//! What a user typed: a path of this machine, or a URL. A URL with a credential in it is refused: it would end up in the
//! config beside every checkpoint.

use super::{Error, Fault};
use std::path::PathBuf;

/// Schemes of URLs that can be opened; of another one it is said which can.
#[cfg(feature = "remote")]
pub(super) const SCHEMES: [&str; 9] = ["s3", "s3a", "gs", "az", "abfs", "abfss", "azure", "http", "https"];

/// Whether a name is a URL and not a path. `file:///…` is one too.
pub fn is_url(name: &str) -> bool {
    scheme(name).is_some()
}

/// The last part of a path or URL.
pub fn last_name(name: &str) -> &str {
    let name = name.trim_end_matches('/');
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// The path, where the location is one of this machine.
pub(super) fn local(location: &str) -> Result<Option<PathBuf>, Error> {
    match scheme(location) {
        None => Ok(Some(location.into())),
        Some("file") => {
            match location["file://".len()..].strip_prefix("localhost").unwrap_or(&location["file://".len()..]) {
                path if path.starts_with('/') => Ok(Some(path.into())),
                _ => Err(Error::new(location, Fault::Unsupported, "no path").hint("file:///absolute/path")),
            }
        }
        Some(_) => Ok(None),
    }
}

pub(super) fn scheme(name: &str) -> Option<&str> {
    let (scheme, _) = name.split_once("://")?;
    let is_word = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_word.then_some(scheme)
}

/// Scheme, host or bucket, and the rest without a leading `/`; credentials are refused.
#[cfg(feature = "remote")]
pub(super) fn parts(location: &str) -> Result<(&str, &str, &str), Error> {
    let scheme = scheme(location).unwrap_or_default();
    let rest = &location[(scheme.len() + 3).min(location.len())..];
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let shown = || {
        format!(
            "{scheme}://{}/{}",
            host.rsplit('@').next().unwrap_or_default(),
            path.split(['?', '#']).next().unwrap_or_default()
        )
    };
    // `abfs://container@account.host/` is how Azure writes an account; a password has a colon.
    let has_login = host.contains('@')
        && (!scheme.starts_with("abfs") || host.split('@').next().is_some_and(|user| user.contains(':')));
    let has_query = scheme.starts_with("http") && path.contains('?');
    if has_login || has_query {
        return Err(Error::new(&shown(), Fault::Unsupported, "credentials in a URL are not taken")
            .hint("they would be saved with every checkpoint; give them in AWS_…, GOOGLE_… or AZURE_… variables"));
    }
    if host.is_empty() {
        return Err(Error::new(&shown(), Fault::Unsupported, "no bucket or host is named"));
    }
    if !SCHEMES.contains(&scheme) {
        return Err(Error::new(&shown(), Fault::Unsupported, format!("unknown scheme `{scheme}`"))
            .hint("s3://, gs://, az://, https:// and file:// are read"));
    }
    Ok((scheme, host, path))
}
