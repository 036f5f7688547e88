//! Errors of requests, in the form that OpenAI's clients read.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use host::error::Explained;
use serde_json::json;

/// Seconds after which a client that was turned away may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error that a client is answered with.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    /// Word for programs.
    code: &'static str,
    /// Field of the request that is wrong.
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, code, param: None, message: message.into() }
    }

    /// A request that can never be answered, whatever the server does.
    pub fn bad(param: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { param: Some(param), ..ApiError::new(StatusCode::BAD_REQUEST, code, message) }
    }

    /// What the voice says about its input, hints included.
    pub fn of_input(param: &'static str, error: &anyhow::Error) -> Self {
        let Explained { fact, hints } = Explained::of(error.as_ref());
        ApiError::bad(param, "invalid_value", [fact].into_iter().chain(hints).collect::<Vec<_>>().join("; "))
    }

    pub fn full() -> Self {
        let message = "as many requests wait as may; try again soon";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
    }

    pub fn draining() -> Self {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "the server is stopping")
    }

    pub fn timeout(seconds: u64) -> Self {
        let message = format!("the speech was not ready within {seconds} s");
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = json!({ "message": self.message, "type": self.kind(), "param": self.param, "code": self.code });
        let mut response = (self.status, crate::json_response(&json!({ "error": error }))).into_response();
        let headers = response.headers_mut();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
