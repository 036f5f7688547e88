//! Answers of speech: whole, as a stream of bytes, or as events.

use super::error::ApiError;
use super::worker::Chunk;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use host::audio::{AudioFormat, Encoder, StreamResampler};
use hyper::body::Frame;
use serde_json::json;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

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
    let encoder = ChunkEncoder::new(spoken_hz, form)?;
    let body = match form.delivery {
        DeliveryMode::Whole => Body::from(whole(chunks, encoder, samples, last).await?),
        DeliveryMode::Stream => Body::new(Stream::new(chunks, encoder, false, &samples, last)),
        DeliveryMode::Events => Body::new(Stream::new(chunks, encoder, true, &samples, last)),
    };
    let (mime, rate) = (form.mime_type(), form.rate_hz.to_string());
    let headers = [(header::CONTENT_TYPE, mime), (SAMPLE_RATE, &rate), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

impl ResponseForm {
    fn mime_type(self) -> &'static str {
        match (self.delivery, self.format) {
            (DeliveryMode::Events, _) => "text/event-stream",
            (_, AudioFormat::Wav) => "audio/wav",
            (_, AudioFormat::Flac) => "audio/flac",
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
    mut encoder: ChunkEncoder,
    mut samples: Vec<f32>,
    mut last: bool,
) -> Result<Bytes, ApiError> {
    let mut file = encoder.file.start();
    file.extend(encoder.encode(&samples, last));
    while !last {
        (samples, last) = next(&mut chunks).await?;
        file.extend(encoder.encode(&samples, last));
    }
    let header = encoder.file.header();
    file[..header.len()].copy_from_slice(&header);
    Ok(file.into())
}

/// Encodes chunks of samples at the rate and in the format that is wanted.
struct ChunkEncoder {
    converter: StreamResampler,
    file: Encoder,
}

impl ChunkEncoder {
    fn new(spoken_hz: u32, form: ResponseForm) -> Result<Self, ApiError> {
        let converter = StreamResampler::new(spoken_hz, form.rate_hz);
        let converter = converter.map_err(|error| ApiError::of_input("sample_rate", &error.into()))?;
        Ok(ChunkEncoder { converter, file: Encoder::new(form.format, form.rate_hz) })
    }

    fn encode(&mut self, samples: &[f32], last: bool) -> Vec<u8> {
        let mut bytes = self.file.push(&self.converter.push(samples));
        if last {
            bytes.extend(self.file.push(&self.converter.finish()));
            bytes.extend(self.file.finish());
        }
        bytes
    }
}

/// The body of an answer that is still being spoken. Where it is cut, the connection breaks: an end in good order would
/// pass for the whole.
struct Stream {
    chunks: mpsc::Receiver<Chunk>,
    encoder: ChunkEncoder,
    events: bool,
    first: Option<Bytes>,
    over: bool,
}

impl Stream {
    fn new(chunks: mpsc::Receiver<Chunk>, encoder: ChunkEncoder, events: bool, samples: &[f32], last: bool) -> Self {
        let mut stream = Stream { chunks, encoder, events, first: None, over: last };
        let first = [stream.encoder.file.start(), stream.encoder.encode(samples, last)].concat();
        stream.first = Some(stream.wrap(first));
        stream
    }

    fn wrap(&self, bytes: Vec<u8>) -> Bytes {
        if !self.events {
            return bytes.into();
        }
        let event = |event: serde_json::Value| format!("data: {event}\n\n");
        let mut text = event(json!({ "type": "speech.audio.delta", "audio": STANDARD.encode(bytes) }));
        if self.over {
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
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.over {
            return Poll::Ready(None);
        }
        let chunk = ready!(self.chunks.poll_recv(context));
        Poll::Ready(Some(match chunk {
            Some(Chunk::Audio { samples, last }) => {
                self.over = last;
                let bytes = self.encoder.encode(&samples, last);
                Ok(Frame::data(self.wrap(bytes)))
            }
            Some(Chunk::Failed(_)) | None => {
                self.over = true;
                Err(io::Error::other("cut before its end"))
            }
        }))
    }
}
