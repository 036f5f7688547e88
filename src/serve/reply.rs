//! What is spoken, on its way to the client: whole, as it comes, or as events.

use super::refusal::Refusal;
use super::worker::Piece;
use crate::audio::{Encoder, Format};
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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

pub struct Reply {
    pieces: mpsc::Receiver<Piece>,
    format: Format,
    rate_hz: u32,
}

impl Reply {
    pub fn new(pieces: mpsc::Receiver<Piece>, format: Format, rate_hz: u32) -> Self {
        Reply { pieces, format, rate_hz }
    }

    /// Waits for the first sound, so that what cannot be spoken is refused with a status of its own.
    pub async fn respond(mut self, delivery: Delivery) -> Result<Response, Refusal> {
        let (samples, last) = self.next().await?;
        let mime = if delivery == Delivery::Events { "text/event-stream" } else { mime_type(self.format) };
        let rate = self.rate_hz.to_string();
        let body = match delivery {
            Delivery::Whole => Body::from(self.whole(samples, last).await?),
            Delivery::Stream | Delivery::Events => Body::new(self.stream(&samples, last, delivery)),
        };
        let headers = [(header::CONTENT_TYPE, mime), (SAMPLE_RATE, &rate), (header::CACHE_CONTROL, "no-store")];
        Ok((headers, body).into_response())
    }

    async fn next(&mut self) -> Result<(Vec<f32>, bool), Refusal> {
        match self.pieces.recv().await {
            Some(Piece::Sound { samples, last }) => Ok((samples, last)),
            Some(Piece::Refused(refusal)) => Err(refusal),
            None => Err(Refusal::internal("the voice stopped speaking")),
        }
    }

    /// Encoded as it comes: half the memory of samples.
    async fn whole(mut self, mut samples: Vec<f32>, mut last: bool) -> Result<Bytes, Refusal> {
        let mut encoder = Encoder::new(self.format, self.rate_hz);
        let mut file = encoder.start();
        loop {
            file.extend(encoder.push(&samples));
            if last {
                break;
            }
            (samples, last) = self.next().await?;
        }
        file.extend(encoder.finish());
        let header = encoder.header();
        file[..header.len()].copy_from_slice(&header);
        Ok(file.into())
    }

    fn stream(self, samples: &[f32], last: bool, delivery: Delivery) -> Stream {
        let encoder = Encoder::new(self.format, self.rate_hz);
        let mut stream =
            Stream { pieces: self.pieces, encoder, events: delivery == Delivery::Events, first: None, over: false };
        let mut first = stream.encoder.start();
        first.extend(stream.encode(samples, last));
        stream.first = Some(stream.wrap(first));
        stream
    }
}

fn mime_type(format: Format) -> &'static str {
    match format {
        Format::Wav => "audio/wav",
        Format::Flac => "audio/flac",
        Format::Raw => "audio/pcm",
    }
}

/// The body of an answer that is still being spoken. Where it is cut, the connection breaks: an end in good order would
/// pass for the whole.
struct Stream {
    pieces: mpsc::Receiver<Piece>,
    encoder: Encoder,
    events: bool,
    first: Option<Bytes>,
    over: bool,
}

impl Stream {
    fn encode(&mut self, samples: &[f32], last: bool) -> Vec<u8> {
        let mut bytes = self.encoder.push(samples);
        if last {
            bytes.extend(self.encoder.finish());
            self.over = true;
        }
        bytes
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
                let bytes = self.encode(&samples, last);
                Ok(Frame::data(self.wrap(bytes)))
            }
            Some(Piece::Refused(_)) | None => {
                self.over = true;
                Err(io::Error::other("cut before its end"))
            }
        }))
    }
}
