//! Answers of speech: whole, as a stream of bytes, or as events.

use super::worker::Chunk;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use host::audio::{AudioFormat, Encoder};
use hyper::body::Frame;
use serde_json::json;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{io, mem};
use tokio::sync::mpsc;
use tokio::task::{self, JoinHandle};
use web::error::ApiError;

const SAMPLE_RATE: HeaderName = HeaderName::from_static("x-sample-rate");

/// How speech goes to the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeliveryMode {
    /// With its length, when all is spoken.
    Whole,
    /// Bytes as they are spoken.
    Stream,
    /// Server-sent events as they are spoken, as OpenAI sends them.
    Events,
}

/// Form of an answer: encoding, rate and delivery.
#[derive(Clone, Copy, Debug)]
pub struct ResponseForm {
    pub format: AudioFormat,
    pub rate_hz: u32,
    pub delivery: DeliveryMode,
}

/// Answers with `chunks`, which come at `spoken_hz`. Waits for the first sound, so that what cannot be spoken is refused
/// with a status of its own.
pub async fn respond(
    mut chunks: mpsc::Receiver<Chunk>,
    spoken_hz: u32,
    form: ResponseForm,
) -> Result<Response, ApiError> {
    let (samples, last) = next(&mut chunks).await?;
    let encoder = Encoder::new(form.format, spoken_hz, form.rate_hz);
    let encoder = encoder.map_err(|error| ApiError::of_input("sample_rate", &error.into()))?;
    let rate = encoder.rate_hz().to_string();
    let body = match form.delivery {
        DeliveryMode::Whole => Body::from(whole(chunks, encoder, samples, last).await?),
        DeliveryMode::Stream => Body::new(Stream::new(chunks, encoder, false, samples, last)),
        DeliveryMode::Events => Body::new(Stream::new(chunks, encoder, true, samples, last)),
    };
    let headers = [(header::CONTENT_TYPE, form.mime_type()), (SAMPLE_RATE, &rate), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

impl ResponseForm {
    fn mime_type(self) -> &'static str {
        match (self.delivery, self.format) {
            (DeliveryMode::Events, _) => "text/event-stream",
            (_, AudioFormat::Wav) => "audio/wav",
            (_, AudioFormat::Flac) => "audio/flac",
            (_, AudioFormat::Mp3) => "audio/mpeg",
            (_, AudioFormat::Opus) => "audio/ogg; codecs=opus", // RFC 7845; audio/opus is for RTP
            (_, AudioFormat::Raw) => "audio/pcm",
        }
    }
}

async fn next(chunks: &mut mpsc::Receiver<Chunk>) -> Result<(Vec<f32>, bool), ApiError> {
    match chunks.recv().await {
        Some(Chunk::Audio { samples, last }) => Ok((samples, last)),
        Some(Chunk::Failed(refusal)) => Err(refusal),
        None => Err(ApiError::internal("the voice stopped speaking")),
    }
}

/// Encoded as it comes: half the memory of samples.
async fn whole(
    mut chunks: mpsc::Receiver<Chunk>,
    encoder: Encoder,
    samples: Vec<f32>,
    last: bool,
) -> Result<Bytes, ApiError> {
    let mut file = encoder.header();
    let (mut encoding, mut last) = (encode(Box::new(encoder), samples, last), last);
    let encoder = loop {
        let (encoder, bytes) = encoding.await.map_err(|_| ApiError::internal("the speech could not be encoded"))?;
        file.extend(bytes);
        if last {
            break encoder;
        }
        let samples;
        (samples, last) = next(&mut chunks).await?;
        encoding = encode(encoder, samples, last);
    };
    let header = encoder.header();
    file[..header.len()].copy_from_slice(&header);
    Ok(file.into())
}

/// Bytes that are being made of a chunk, and the encoder for the next.
type Encoding = JoinHandle<(Box<Encoder>, Vec<u8>)>;

/// Encodes a chunk on another thread: MP3 and Opus of one second take milliseconds, for which the one thread of all
/// connections would stand still.
fn encode(mut encoder: Box<Encoder>, samples: Vec<f32>, last: bool) -> Encoding {
    task::spawn_blocking(move || {
        let mut bytes = encoder.push(&samples);
        if last {
            bytes.extend(encoder.finish());
        }
        (encoder, bytes)
    })
}

/// The body of an answer that is still being spoken. Where it is cut, the connection breaks: an end in good order would
/// pass for the whole.
struct Stream {
    chunks: mpsc::Receiver<Chunk>,
    events: bool,
    /// What the first bytes begin with.
    header: Vec<u8>,
    state: State,
}

enum State {
    /// For the next chunk.
    Waiting(Box<Encoder>),
    /// A chunk, and whether it is the last.
    Encoding(Encoding, bool),
    Over,
}

impl Stream {
    fn new(chunks: mpsc::Receiver<Chunk>, encoder: Encoder, events: bool, samples: Vec<f32>, last: bool) -> Self {
        let header = encoder.start();
        let state = State::Encoding(encode(Box::new(encoder), samples, last), last);
        Stream { chunks, events, header, state }
    }

    fn wrap(&mut self, bytes: Vec<u8>, last: bool) -> Bytes {
        let bytes = [mem::take(&mut self.header), bytes].concat();
        if !self.events {
            return bytes.into();
        }
        let event = |event: serde_json::Value| format!("data: {event}\n\n");
        let mut text = event(json!({ "type": "speech.audio.delta", "audio": STANDARD.encode(bytes) }));
        if last {
            // Nothing is counted in tokens here, and OpenAI's clients want the figures.
            let usage = json!({ "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 });
            text += &event(json!({ "type": "speech.audio.done", "usage": usage }));
        }
        text.into()
    }
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            match mem::replace(&mut self.state, State::Over) {
                State::Waiting(encoder) => match self.chunks.poll_recv(context) {
                    Poll::Pending => {
                        self.state = State::Waiting(encoder);
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(Chunk::Audio { samples, last })) => {
                        self.state = State::Encoding(encode(encoder, samples, last), last);
                    }
                    Poll::Ready(Some(Chunk::Failed(_)) | None) => {
                        return Poll::Ready(Some(Err(io::Error::other("cut before its end"))));
                    }
                },
                State::Encoding(mut encoding, last) => match Pin::new(&mut encoding).poll(context) {
                    Poll::Pending => {
                        self.state = State::Encoding(encoding, last);
                        return Poll::Pending;
                    }
                    Poll::Ready(made) => {
                        let (encoder, bytes) = made?;
                        self.state = if last { State::Over } else { State::Waiting(encoder) };
                        return Poll::Ready(Some(Ok(Frame::data(self.wrap(bytes, last)))));
                    }
                },
                State::Over => return Poll::Ready(None),
            }
        }
    }
}
