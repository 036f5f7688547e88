//! What is spoken, on its way to the client: whole, as it comes, or as events.

use super::refusal::Refusal;
use super::worker::Piece;
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

/// How the client wants it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delivery {
    /// With its length, when all is spoken.
    Whole,
    /// Bytes as they are spoken.
    Stream,
    /// Server-sent events as they are spoken, as OpenAI sends them.
    Events,
}

/// What the answer is to be.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub format: AudioFormat,
    pub rate_hz: u32,
    pub delivery: Delivery,
}

/// Answers with `pieces`, which come at `spoken_hz`. Waits for the first sound, so that what cannot be spoken is refused
/// with a status of its own.
pub async fn respond(mut pieces: mpsc::Receiver<Piece>, spoken_hz: u32, form: Form) -> Result<Response, Refusal> {
    let (samples, last) = next(&mut pieces).await?;
    let sound = Sound::new(spoken_hz, form)?;
    let body = match form.delivery {
        Delivery::Whole => Body::from(whole(pieces, sound, samples, last).await?),
        Delivery::Stream => Body::new(Stream::new(pieces, sound, false, &samples, last)),
        Delivery::Events => Body::new(Stream::new(pieces, sound, true, &samples, last)),
    };
    let (mime, rate) = (form.mime_type(), form.rate_hz.to_string());
    let headers = [(header::CONTENT_TYPE, mime), (SAMPLE_RATE, &rate), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

impl Form {
    fn mime_type(self) -> &'static str {
        match (self.delivery, self.format) {
            (Delivery::Events, _) => "text/event-stream",
            (_, AudioFormat::Wav) => "audio/wav",
            (_, AudioFormat::Flac) => "audio/flac",
            (_, AudioFormat::Raw) => "audio/pcm",
        }
    }
}

async fn next(pieces: &mut mpsc::Receiver<Piece>) -> Result<(Vec<f32>, bool), Refusal> {
    match pieces.recv().await {
        Some(Piece::Sound { samples, last }) => Ok((samples, last)),
        Some(Piece::Refused(refusal)) => Err(refusal),
        None => Err(Refusal::internal("the voice stopped speaking")),
    }
}

/// Encoded as it comes: half the memory of samples.
async fn whole(
    mut pieces: mpsc::Receiver<Piece>,
    mut sound: Sound,
    mut samples: Vec<f32>,
    mut last: bool,
) -> Result<Bytes, Refusal> {
    let mut file = sound.encoder.start();
    file.extend(sound.encode(&samples, last));
    while !last {
        (samples, last) = next(&mut pieces).await?;
        file.extend(sound.encode(&samples, last));
    }
    let header = sound.encoder.header();
    file[..header.len()].copy_from_slice(&header);
    Ok(file.into())
}

/// Samples to bytes, at the rate and in the format that is wanted.
struct Sound {
    converter: StreamResampler,
    encoder: Encoder,
}

impl Sound {
    fn new(spoken_hz: u32, form: Form) -> Result<Self, Refusal> {
        let converter = StreamResampler::new(spoken_hz, form.rate_hz);
        let converter = converter.map_err(|error| Refusal::of_input("sample_rate", &error.into()))?;
        Ok(Sound { converter, encoder: Encoder::new(form.format, form.rate_hz) })
    }

    fn encode(&mut self, samples: &[f32], last: bool) -> Vec<u8> {
        let mut bytes = self.encoder.push(&self.converter.push(samples));
        if last {
            bytes.extend(self.encoder.push(&self.converter.finish()));
            bytes.extend(self.encoder.finish());
        }
        bytes
    }
}

/// The body of an answer that is still being spoken. Where it is cut, the connection breaks: an end in good order would
/// pass for the whole.
struct Stream {
    pieces: mpsc::Receiver<Piece>,
    sound: Sound,
    events: bool,
    first: Option<Bytes>,
    over: bool,
}

impl Stream {
    fn new(pieces: mpsc::Receiver<Piece>, sound: Sound, events: bool, samples: &[f32], last: bool) -> Self {
        let mut stream = Stream { pieces, sound, events, first: None, over: last };
        let first = [stream.sound.encoder.start(), stream.sound.encode(samples, last)].concat();
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
        let piece = ready!(self.pieces.poll_recv(context));
        Poll::Ready(Some(match piece {
            Some(Piece::Sound { samples, last }) => {
                self.over = last;
                let bytes = self.sound.encode(&samples, last);
                Ok(Frame::data(self.wrap(bytes)))
            }
            Some(Piece::Refused(_)) | None => {
                self.over = true;
                Err(io::Error::other("cut before its end"))
            }
        }))
    }
}
