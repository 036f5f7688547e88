//! The page: one file, nothing from elsewhere.

use axum::http::{HeaderMap, HeaderValue, header};
use std::hash::{BuildHasher, RandomState};

const PAGE: &str = include_str!("page.html");
/// Stands in the page where scripts and styles carry the number of this answer.
const NONCE: &str = "{nonce}";

/// Scripts and styles run only with the number that this answer carries, so text can never become either.
pub async fn page() -> (HeaderMap, String) {
    let nonce = format!("{:016x}{:016x}", RandomState::new().hash_one(0u8), RandomState::new().hash_one(0u8));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         media-src blob:; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy).expect("letters and digits"));
    (headers, PAGE.replace(NONCE, &nonce))
}
