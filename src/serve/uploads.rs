//! Voices that clients send: a recording in, a name out that only they know. Kept in memory, and off unless allowed.

use super::refusal::Refusal;
use super::worker::Order;
use super::{App, answer, body};
use crate::audio::decode_bytes;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Three minutes of 16-bit samples at 24 kHz, and more than that of anything compressed.
const MOST_BYTES: usize = 10 << 20;
/// Longer recordings are heard up to here.
const MOST_SECONDS: f64 = 60.0;

pub async fn upload(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Refusal> {
    allowed(&app)?;
    body::require_type(&headers, &["audio/*", "application/octet-stream"])?;
    let _turn = app.uploading.try_acquire().map_err(|_| Refusal::full())?; // decoding unfolds: one at a time
    let bytes = body::read(&headers, body, MOST_BYTES).await?;
    let unread = |error: &anyhow::Error| Refusal::of_input("file", error);
    let decoded = tokio::task::spawn_blocking(move || decode_bytes(bytes.into(), "the recording", MOST_SECONDS)).await;
    let (recording, _) =
        decoded.map_err(|_| Refusal::internal("the decoder failed"))?.map_err(|error| unread(&error.into()))?;
    let (reply, heard) = oneshot::channel();
    app.order(Order::Hear { recording, reply })?;
    let prompt = heard.await.map_err(|_| Refusal::internal("the voice has failed"))?.map_err(|error| unread(&error))?;
    Ok(answer(&json!({ "id": app.voices.keep(prompt), "object": "voice" })))
}

pub async fn forget(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    allowed(&app)?;
    app.voices.forget(&id).map(|()| StatusCode::NO_CONTENT)
}

fn allowed(app: &App) -> Result<(), Refusal> {
    let refuse = |message| Err(Refusal::new(StatusCode::FORBIDDEN, "uploads_off", message));
    match (app.settings.allow_uploads, app.clones) {
        (true, true) => Ok(()),
        (true, false) => refuse("this model was trained without `context_share`, so it cannot take another's sound"),
        (false, _) => refuse("this server takes no uploads"),
    }
}
