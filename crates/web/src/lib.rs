//! What is served over HTTP, without LibTorch: connections with limits, bearer tokens, errors that clients read, pages that
//! are one file each; and the live view of runs, which needs nothing else.

pub mod body;
pub mod error;
pub mod listen;
pub mod live;
pub mod page;
pub mod token;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An answer of JSON, with a line's end for terminals.
pub fn json_response(value: &impl Serialize) -> Response {
    let mut body = serde_json::to_vec(value).expect("plain values are JSON");
    body.push(b'\n');
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
