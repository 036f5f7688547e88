//! `POST /v1/audio/speech`: OpenAI's request, with a few fields of our own.

use super::response::{self, DeliveryMode, ResponseForm};
use super::worker::{CHUNKS_AHEAD, Chunk, SpeechJob, WorkerRequest};
use super::{AppState, voices};
use crate::model::Sampling;
use crate::synth::{Options, Request};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use host::audio::AudioFormat;
use host::config::speaking::{DEFAULT_LOUDNESS, GUIDANCE, LOUDNESS, SPEED, TEMPERATURE};
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::mpsc;
use web::body;
use web::error::ApiError;

/// Names that OpenAI's clients ask for; there is one model here.
const OPENAI_MODELS: [&str; 3] = ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];
/// More is not heard, and would let one request hold up all others.
const STEPS: RangeInclusive<usize> = 1..=100;
/// Bare samples say nothing of their rate, and OpenAI's clients play them at this one.
const OPENAI_PCM_HZ: u32 = 24_000;
const RATES_HZ: [u32; 8] = [8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
/// JSON may write a character in as many bytes, as two escaped halves.
const MOST_BYTES_PER_CHAR: usize = 12;
/// Room for the other fields.
const ROOM_BYTES: usize = 16 << 10;

/// Body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeechRequest {
    input: String,
    model: Option<String>,
    voice: Option<Voice>,
    response_format: Option<String>,
    speed: Option<f64>,
    stream_format: Option<String>,
    /// Instructions in words: taken and not used, as by OpenAI's own `tts-1`.
    #[serde(rename = "instructions")]
    _instructions: Option<String>,
    // Beyond OpenAI.
    stream: Option<bool>,
    language: Option<String>,
    sample_rate: Option<u32>,
    seed: Option<u32>,
    steps: Option<usize>,
    temperature: Option<f64>,
    guidance: Option<f64>,
    loudness: Option<f64>,
}

/// OpenAI names its own voices by text and those that users made by an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum Voice {
    Name(String),
    Custom { id: String },
}

/// Speaks a text.
pub async fn speech(State(app): State<Arc<AppState>>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    body::require_type(&headers, &["application/json"])?;
    let limit = app.settings.max_text * MOST_BYTES_PER_CHAR + ROOM_BYTES;
    let bytes = body::read(&headers, body, limit).await?;
    let wanted: SpeechRequest = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not a speech request: {error}"))
    })?;
    let form = wanted.form(app.rate_hz)?;
    let request = wanted.request(&app, form.delivery != DeliveryMode::Whole)?;
    response::respond(submit(&app, request)?, app.rate_hz, form).await
}

/// Takes a place in the queue, or answers 429. The channel ends early when the place is lost.
fn submit(app: &AppState, request: Request) -> Result<mpsc::Receiver<Chunk>, ApiError> {
    if app.draining.load(Ordering::Relaxed) {
        return Err(ApiError::draining());
    }
    let place = app.queue_places.clone().try_acquire_owned().map_err(|_| {
        app.metrics.rejected.fetch_add(1, Ordering::Relaxed);
        ApiError::full()
    })?;
    let (reply, chunks) = mpsc::channel(CHUNKS_AHEAD);
    let job = SpeechJob { request, reply, accepted: Instant::now(), limit: app.settings.timeout, _place: place };
    app.send(WorkerRequest::Speak(job))?;
    Ok(chunks)
}

impl SpeechRequest {
    fn form(&self, spoken_hz: u32) -> Result<ResponseForm, ApiError> {
        let format = match self.response_format.as_deref() {
            // OpenAI's default: its clients save what comes as `speech.mp3`.
            None | Some("mp3") => AudioFormat::Mp3,
            Some("opus") => AudioFormat::Opus,
            Some("wav") => AudioFormat::Wav,
            Some("flac") => AudioFormat::Flac,
            Some("pcm") => AudioFormat::Raw,
            Some(_) => {
                let message = "response_format may be mp3, opus, wav, flac or pcm";
                return Err(ApiError::bad("response_format", "unsupported_format", message));
            }
        };
        let delivery = match (self.stream_format.as_deref(), self.stream) {
            (Some("sse"), None | Some(true)) => DeliveryMode::Events,
            (Some("audio"), None | Some(true)) | (None, Some(true)) => DeliveryMode::Stream,
            (None | Some("audio"), Some(false)) => DeliveryMode::Whole,
            (None, None) if format.tells_length() => DeliveryMode::Whole,
            (None, None) => DeliveryMode::Stream,
            (Some("sse"), Some(false)) => {
                return Err(ApiError::bad("stream_format", "invalid_value", "events are a stream: leave `stream` out"));
            }
            (Some(_), _) => {
                return Err(ApiError::bad("stream_format", "invalid_value", "stream_format may be audio or sse"));
            }
        };
        let usual_hz = if format == AudioFormat::Raw { OPENAI_PCM_HZ } else { spoken_hz };
        let rate_hz = self.sample_rate.unwrap_or(usual_hz);
        if rate_hz != spoken_hz && !RATES_HZ.contains(&rate_hz) {
            let message = format!("sample_rate may be {spoken_hz} and {RATES_HZ:?}");
            return Err(ApiError::bad("sample_rate", "invalid_value", message));
        }
        Ok(ResponseForm { format, rate_hz, delivery })
    }

    /// `early`: the first sound is waited for.
    fn request(self, app: &AppState, early: bool) -> Result<Request, ApiError> {
        let letters = self.input.chars().count();
        let most = app.settings.max_text;
        if letters > most {
            let message = format!("input has {letters} characters, at most {most} are taken");
            return Err(ApiError::bad("input", "string_above_max_length", message));
        }
        if self.model.as_deref().is_some_and(|name| name != app.settings.model && !OPENAI_MODELS.contains(&name)) {
            return Err(no_model(app));
        }
        let voice = match &self.voice {
            Some(Voice::Name(name) | Voice::Custom { id: name }) => name,
            None => voices::DEFAULT,
        };
        let prompt = app.voices.find(voice)?;
        let options = self.options(early)?;
        Ok(Request { text: self.input, language: self.language, prompt, options })
    }

    fn options(&self, early: bool) -> Result<Options, ApiError> {
        let usual = Options::default();
        let sampling = Sampling {
            steps: within("steps", self.steps, usual.sampling.steps, STEPS)?,
            temperature: within("temperature", self.temperature, usual.sampling.temperature, TEMPERATURE)?,
            guidance: within("guidance", self.guidance, usual.sampling.guidance, GUIDANCE)?,
            ..usual.sampling
        };
        let speed = within("speed", self.speed, usual.speed, SPEED)?;
        let loudness = within("loudness", self.loudness, DEFAULT_LOUDNESS, LOUDNESS)?;
        let seed = self.seed.map_or(usual.seed, u64::from);
        Ok(Options { sampling, speed, loudness: Some(loudness), seed, early })
    }
}

pub fn no_model(app: &AppState) -> ApiError {
    let message = format!("no such model; here is {}", app.settings.model);
    ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message)
}

fn within<T: PartialOrd + std::fmt::Display>(
    param: &'static str,
    wanted: Option<T>,
    usual: T,
    range: RangeInclusive<T>,
) -> Result<T, ApiError> {
    let value = wanted.unwrap_or(usual);
    let message = || format!("{param} may be {} to {}", range.start(), range.end());
    if range.contains(&value) { Ok(value) } else { Err(ApiError::bad(param, "invalid_value", message())) }
}
