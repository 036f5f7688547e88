//! Voices that clients send: a recording in, a name out that only they know. Kept in memory, and off unless allowed.

use super::AppState;
use super::worker::WorkerRequest;
use anyhow::Context;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use host::audio::decode_bytes;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::oneshot;
use web::error::ApiError;
use web::{body, json_response};

/// Three minutes of 16-bit samples at 24 kHz, and more than that of anything compressed.
const MOST_BYTES: usize = 10 << 20;
/// Longer recordings are heard up to here.
const MOST_SECONDS: f64 = 60.0;

/// Takes a recording and answers with the name of its voice, and what may be wrong with it.
pub async fn upload(State(app): State<Arc<AppState>>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    allowed(&app)?;
    body::require_type(&headers, &["audio/*", "application/octet-stream"])?;
    let _turn = app.uploading.try_acquire().map_err(|_| ApiError::full())?; // decoding unfolds: one at a time
    let bytes = body::read(&headers, body, MOST_BYTES).await?;
    let unread = |error: &anyhow::Error| ApiError::of_input("file", error);
    let decoded = tokio::task::spawn_blocking(move || decode_bytes(bytes.into(), MOST_SECONDS)).await;
    let (recording, _) = decoded
        .map_err(|_| ApiError::internal("the decoder failed"))?
        .context("the recording")
        .map_err(|error| unread(&error))?;
    let (reply, heard) = oneshot::channel();
    app.send(WorkerRequest::Hear { recording, reply })?;
    let (prompt, warnings) =
        heard.await.map_err(|_| ApiError::internal("the voice has failed"))?.map_err(|error| unread(&error))?;
    Ok(json_response(&json!({ "id": app.voices.keep(prompt), "object": "voice", "warnings": warnings })))
}

/// Forgets an uploaded voice.
pub async fn forget(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    allowed(&app)?;
    app.voices.forget(&id).map(|()| StatusCode::NO_CONTENT)
}

/// Refuses where uploads are off, or the model cannot clone.
fn allowed(app: &AppState) -> Result<(), ApiError> {
    let refuse = |message| Err(ApiError::new(StatusCode::FORBIDDEN, "uploads_off", message));
    match (app.settings.allow_uploads, app.clones) {
        (true, true) => Ok(()),
        (true, false) => refuse("this model was trained without `context_share`, so it cannot take another's sound"),
        (false, _) => refuse("this server takes no uploads"),
    }
}
