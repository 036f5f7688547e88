//! Pages: one file each, nothing from elsewhere, and a look and code that they share.

use crate::token;
use axum::http::{HeaderMap, HeaderValue, header};

const LOOK: &str = include_str!("look.css");
const SHARED: &str = include_str!("shared.js");
/// Stands in a page where scripts and styles carry the number of this answer.
const NONCE: &str = "{nonce}";

/// A page whose parts were put together; only the number of the answer is missing.
pub struct Page(String);

impl Page {
    /// Puts what pages share where `html` says `{look}` and `{shared}`, and each of `parts` where it says its name.
    pub fn new(html: &str, parts: &[(&str, &str)]) -> Self {
        let shared = [("{look}", LOOK), ("{shared}", SHARED)];
        let fill = |html: String, (name, text): &(&str, &str)| html.replace(name, text);
        Page(shared.iter().chain(parts).fold(html.to_owned(), fill))
    }

    /// Scripts and styles run only with the number that this answer carries, so text can never become either.
    pub fn answer(&self) -> (HeaderMap, String) {
        let nonce = token::random();
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
             media-src blob:; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy).expect("letters and digits"));
        (headers, self.0.replace(NONCE, &nonce))
    }
}
