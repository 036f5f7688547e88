//! Bodies of requests, with limits of size and time.

use crate::error::ApiError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// Time for a whole body, however slowly it is sent.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that still sends would not see why it is refused, so a little more is read and thrown away.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 20;

/// Refuses a body of another content type. A page of another site can send a form's types without asking, and no others.
pub fn require_type(headers: &HeaderMap, accepted: &[&str]) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if accepted.iter().any(|&kind| kind == given || kind.strip_suffix('*').is_some_and(|kind| given.starts_with(kind)))
    {
        return Ok(());
    }
    let message = format!("content-type must be {}", accepted.join(" or "));
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let promised = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if promised.is_some_and(|bytes: usize| bytes > limit) {
        return Err(too_large(body, limit).await);
    }
    let late = || {
        ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            format!("the body was not here after {} s", BODY_TIMEOUT.as_secs()),
        )
    };
    match timeout(BODY_TIMEOUT, gather(&mut body, limit)).await.map_err(|_| late())?? {
        Some(bytes) => Ok(bytes),
        None => Err(too_large(body, limit).await),
    }
}

/// Collects the body; none where it is larger.
async fn gather(body: &mut Body, limit: usize) -> Result<Option<Bytes>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(data) = next(body).await? {
        if bytes.len() + data.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes.into()))
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    let broken = |_| ApiError::new(StatusCode::BAD_REQUEST, "broken_body", "the body ended early");
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await.transpose().map_err(broken)?;
    Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

async fn too_large(mut body: Body, limit: usize) -> ApiError {
    let _ = timeout(LINGER, async {
        let mut seen = 0;
        while let Ok(Some(data)) = next(&mut body).await {
            seen += data.len();
            if seen > LINGER_BYTES {
                break;
            }
        }
    })
    .await;
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", format!("a body may have {limit} bytes"))
}
