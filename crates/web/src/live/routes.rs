//! What the page asks for.

use super::listener::Listener;
use super::query::value;
use super::runs::ShownRun;
use super::{AppState, not_found, stream};
use crate::error::ApiError;
use crate::page::Page;
use crate::{body, json_response, token};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use host::audio;
use host::recogniser::words;
use host::run_log::{Curves, HeardFile, RangeCurves, RangeQuery, SampleFolder, Series};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, LazyLock, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// A run with more figures than can be read in this time is shown as far as it was read.
const PATIENCE: Duration = Duration::from_millis(600);
/// Seconds between two values of the pitch.
const PITCH_S: f64 = 0.01;
const MOST_NOTE_CHARACTERS: usize = 500;
const MOST_BODY_BYTES: usize = 8 << 10;

/// Figure that is no line of `metrics.jsonl`, but follows from what was heard.
const WORD_ERROR: &str = "word_error_percent";

type Answer = Result<Response, ApiError>;

pub async fn page() -> impl IntoResponse {
    static PAGE: LazyLock<Page> = LazyLock::new(|| {
        let parts = [
            ("{live}", include_str!("live.css")),
            ("{words}", include_str!("words.js")),
            ("{charts}", include_str!("charts.js")),
            ("{program}", include_str!("live.js")),
        ];
        Page::new(include_str!("page.html"), &parts)
    });
    PAGE.answer()
}

pub async fn list(State(app): State<Arc<AppState>>) -> Answer {
    let (controls, streams) = (app.hub.as_ref().is_some_and(|hub| hub.controls()), app.hub.is_some());
    let runs = read(&app, |app| Ok(app.runs.all().iter().map(|run| run.summary()).collect::<Vec<Value>>())).await?;
    let listener = app.listener.as_ref().map(Listener::state);
    Ok(json_response(&json!({ "runs": runs, "streams": streams, "controls": controls, "listener": listener })))
}

pub async fn show(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Answer {
    of_run(&app, id, |run| {
        let mut reader = run.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.advance(PATIENCE).map_err(unreadable)?;
        let (mut latest, mut names) = (json!(reader.latest()), reader.names().to_vec());
        drop(reader);
        if let Some(last) = run.word_error(None).last() {
            latest[WORD_ERROR] = json!(last);
            names.push(WORD_ERROR.into());
        }
        Ok(json_response(&run.details(latest, names)))
    })
    .await
}

/// Curves of the named figures: of all steps, or more finely of some.
pub async fn curves(State(app): State<Arc<AppState>>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let number = |name: &str| value(query.as_deref(), name)?.parse::<u64>().ok();
    let range = number("from").zip(number("to")).map(|(from, to)| RangeQuery { from, to });
    let names = value(query.as_deref(), "names").unwrap_or_default();
    of_run(&app, id, move |run| {
        let names: Vec<&str> = names.split(',').collect();
        let mut reader = run.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.advance(PATIENCE).map_err(unreadable)?;
        let heard = names.contains(&WORD_ERROR).then(|| run.word_error(range)).filter(|series| !series.is_empty());
        let Some(range) = range else { return Ok(answered(reader.curves(&names), &heard)) };
        let part = reader.part(range);
        drop(reader);
        Ok(answered(RangeCurves::read(part, range).map_err(unreadable)?.curves(&names), &heard))
    })
    .await
}

fn answered<'a>(mut curves: Curves<'a>, heard: &'a Option<Series>) -> Response {
    curves.series.extend(heard.iter().map(|series| (WORD_ERROR, series)));
    json_response(&curves)
}

pub async fn sound(State(app): State<Arc<AppState>>, Path((id, clip, step)): Path<(String, usize, String)>) -> Answer {
    of_run(&app, id, move |run| {
        let samples = SampleFolder::of(&run.folder.log_dir);
        let path = match step.as_str() {
            "recording" => samples.recording(clip),
            step => samples.spoken(clip, step.parse().map_err(|_| not_found("no such step"))?),
        };
        let bytes = fs::read(path).map_err(|_| not_found("there is no such sound"))?;
        Ok(([(header::CONTENT_TYPE, "audio/flac")], bytes).into_response())
    })
    .await
}

/// How text, sound and pitch of a clip go together at a step.
pub async fn clip(State(app): State<Arc<AppState>>, Path((id, clip, step)): Path<(String, usize, u64)>) -> Answer {
    of_run(&app, id, move |run| {
        let samples = SampleFolder::of(&run.folder.log_dir);
        let pitch = |path: &std::path::Path| -> Option<Vec<Option<f64>>> {
            let wave = audio::decode(path).ok()?;
            let hop = (f64::from(wave.rate_hz) * PITCH_S) as usize;
            let track = audio::pitch::track(&wave.samples, wave.rate_hz, hop);
            Some(track.into_iter().map(|hz| hz.map(|hz| (hz * 10.0).round() / 10.0)).collect())
        };
        let spoken = pitch(&samples.spoken(clip, step)).ok_or_else(|| not_found("there is no such sound"))?;
        let recorded = pitch(&samples.recording(clip));
        let pitch = json!({ "seconds": PITCH_S, "spoken": spoken, "recorded": recorded });
        Ok(json_response(&json!({ "alignment": samples.alignment(clip, step), "pitch": pitch })))
    })
    .await
}

/// What was heard in a clip, word by word beside what was to be said.
pub async fn heard(State(app): State<Arc<AppState>>, Path((id, clip, step)): Path<(String, usize, String)>) -> Answer {
    of_run(&app, id, move |run| {
        let step = match step.as_str() {
            "recording" => None,
            step => Some(step.parse().map_err(|_| not_found("no such step"))?),
        };
        let log_dir = &run.folder.log_dir;
        let heard = HeardFile::of(log_dir).read().into_iter().find(|line| (line.clip, line.step) == (clip, step));
        let wanted = SampleFolder::of(log_dir).clips().into_iter().nth(clip);
        let (heard, wanted) = heard.zip(wanted).ok_or_else(|| not_found("nobody has listened to it yet"))?;
        let words = words::align_texts(&wanted.text, &heard.text, &wanted.language);
        Ok(json_response(&json!({ "words": words, "edits": heard.edits, "of": heard.of })))
    })
    .await
}

pub async fn stream(State(app): State<Arc<AppState>>) -> Answer {
    app.hub.as_ref().map(stream::events).ok_or_else(|| not_found("no run shows itself here: its files are read"))
}

/// A wish. Nothing else can be changed from a page.
#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
enum Wish {
    Save,
    Stop,
    Note { text: String },
}

pub async fn control(State(app): State<Arc<AppState>>, headers: HeaderMap, body: Body) -> Answer {
    let hub = app.hub.as_ref().filter(|hub| hub.controls()).ok_or_else(|| {
        ApiError::new(
            StatusCode::FORBIDDEN,
            "control_off",
            "nothing may be asked of this run; --live-control allows it",
        )
    })?;
    // Whatever the address: another page of this machine's browser could ask as well.
    if !app.token.as_ref().is_some_and(|token| token::carries(&headers, token)) {
        return Err(refused());
    }
    body::require_type(&headers, &["application/json"])?;
    let bytes = body::read(&headers, body, MOST_BODY_BYTES).await?;
    let wish: Wish = serde_json::from_slice(&bytes)
        .map_err(|_| ApiError::bad("action", "invalid_value", "save, stop, or a note with its text"))?;
    let taken = match wish {
        Wish::Save => hub.ask_to_save(),
        Wish::Stop => hub.ask_to_stop(),
        Wish::Note { text } if text.trim().is_empty() || text.chars().count() > MOST_NOTE_CHARACTERS => {
            let message = format!("a note has 1 to {MOST_NOTE_CHARACTERS} characters");
            return Err(ApiError::bad("text", "invalid_value", message));
        }
        Wish::Note { text } => hub.note(text.trim().to_owned()),
    };
    if taken { Ok(StatusCode::ACCEPTED.into_response()) } else { Err(ApiError::full()) }
}

pub async fn unknown() -> ApiError {
    not_found("nothing is here")
}

pub fn refused() -> ApiError {
    let message = "a bearer token is needed: open the address that the program printed";
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
}

fn unreadable(error: std::io::Error) -> ApiError {
    not_found(&format!("the figures cannot be read: {error}"))
}

/// Reads files on another thread, a few at a time: the one of all connections goes on.
async fn read<T: Send + 'static>(
    app: &Arc<AppState>,
    work: impl FnOnce(&AppState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = || ApiError::internal("reading failed");
    let _turn = app.readers.acquire().await.map_err(|_| failed())?;
    let app = app.clone();
    spawn_blocking(move || work(&app)).await.map_err(|_| failed())?
}

async fn of_run(app: &Arc<AppState>, id: String, work: impl FnOnce(&ShownRun) -> Answer + Send + 'static) -> Answer {
    let find = move |app: &AppState| work(&*app.runs.get(&id).ok_or_else(|| not_found("no such run"))?);
    read(app, find).await
}
