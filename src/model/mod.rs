//! The voice: text to mel frames. Matcha-TTS family, on packed batches of fixed shape.
//!
//! Training aligns text and frames by search (`align`), pulls each token's mean towards its frames, teaches the
//! duration predictor what the search found, and the decoder the flow from noise to speech.

mod align;
mod decoder;
mod encoder;
pub mod flow;
mod layers;
#[cfg(test)]
mod tests;

use crate::config;
use crate::feed::{Batch, Packed};
use align::Aligner;
use decoder::Decoder;
use encoder::{DurationPredictor, Encoder};
use tch::nn::Path;
use tch::{Kind, Tensor};

pub struct Voice {
    encoder: Encoder,
    duration: DurationPredictor,
    decoder: Decoder,
    aligner: Aligner,
    /// Kind of the activations; weights stay f32.
    kind: Kind,
    /// Compute the decoder's blocks again in the backward pass instead of keeping their activations.
    recompute: bool,
}

/// The parts of the training loss, each a 0-d tensor. Their sum is minimised.
pub struct Losses {
    /// Distance of frames from their token's mean.
    pub prior: Tensor,
    pub duration: Tensor,
    pub flow: Tensor,
}

impl Losses {
    pub const NAMES: [&'static str; 3] = ["prior", "duration", "flow"];

    pub fn total(&self) -> Tensor {
        &self.prior + &self.duration + &self.flow
    }

    pub fn parts(&self) -> [&Tensor; 3] {
        [&self.prior, &self.duration, &self.flow]
    }

    fn detach(&self) -> Losses {
        Losses { prior: self.prior.detach(), duration: self.duration.detach(), flow: self.flow.detach() }
    }
}

/// Random points on the paths from noise to a batch's frames.
struct Draw {
    /// `[capacity]`
    times: Tensor,
    /// `[frames, n_mels]` each.
    noisy: Tensor,
    velocity: Tensor,
}

impl Draw {
    fn new(batch: &Batch) -> Self {
        let frames = &batch.frames;
        let times = flow::draw_times(frames.capacity(), batch.mel.device());
        let per_frame = times.index_select(0, &frames.owner.clamp_max(frames.capacity() - 1)).unsqueeze(1);
        let (noisy, velocity) = flow::path(&batch.mel.randn_like(), &batch.mel, &per_frame);
        Draw { times, noisy, velocity }
    }

    fn loss(&self, guess: &Tensor, batch: &Batch) -> Tensor {
        batch.frames.mean(&(guess - &self.velocity).square())
    }
}

impl Voice {
    pub fn new(path: &Path, config: &config::Model, vocab_size: usize, kind: Kind) -> Result<Self, torchx::Error> {
        Ok(Voice {
            aligner: Aligner::new(path.device())?,
            encoder: Encoder::new(path / "encoder", config, vocab_size as i64),
            duration: DurationPredictor::new(path / "duration", config),
            decoder: Decoder::new(path / "decoder", config),
            kind,
            recompute: config.enable_gradient_checkpointing,
        })
    }

    /// The losses of a batch, for a backward pass or for validation.
    pub fn losses(&self, batch: &Batch, train: bool) -> Losses {
        self.losses_at(batch, &Draw::new(batch), train)
    }

    fn losses_at(&self, batch: &Batch, draw: &Draw, train: bool) -> Losses {
        let (aligned, prior, duration) = self.text_losses(batch, train);
        let guess = self.decoder.forward(&draw.noisy, &aligned, &draw.times, &batch.frames, self.kind);
        Losses { prior, duration, flow: draw.loss(&guess, batch) }
    }

    /// Adds `share` of the losses' gradients to the parameters'. The losses come back without a graph.
    pub fn backward(&self, batch: &Batch, share: f64) -> Losses {
        self.backward_at(batch, &Draw::new(batch), share)
    }

    fn backward_at(&self, batch: &Batch, draw: &Draw, share: f64) -> Losses {
        if !self.recompute {
            let losses = self.losses_at(batch, draw, true);
            (losses.total() * share).backward();
            return losses.detach();
        }
        let (aligned, prior, duration) = self.text_losses(batch, true);
        let loss = |guess: &Tensor| draw.loss(guess, batch) * share;
        let (flow, by_aligned) =
            self.decoder.backward(&draw.noisy, &aligned, &draw.times, &batch.frames, self.kind, loss);
        ((&prior + &duration) * share + (aligned * by_aligned).sum(Kind::Float)).backward();
        Losses { prior, duration, flow: flow / share }.detach()
    }

    /// Means along the frames, and what is learned from text and alignment alone.
    fn text_losses(&self, batch: &Batch, train: bool) -> (Tensor, Tensor, Tensor) {
        let (text, frames) = (&batch.text, &batch.frames);
        let (hidden, mean) = self.encoder.forward(&batch.tokens, text, self.kind, train);
        let token_of_frame = self.aligner.search(&mean, &batch.mel, text, frames);
        let aligned = mean.index_select(0, &token_of_frame);
        let log_frames = align::durations(&token_of_frame, text, frames).clamp_min(1.0).log();
        let predicted = self.duration.forward(&hidden, text, train);
        let prior = frames.mean(&(&batch.mel - &aligned).square()) * 0.5;
        let duration = text.mean(&(predicted - log_frames).square());
        (aligned, prior, duration)
    }

    /// Frames that each token should last (`[text]`, f32) and its mean frame (`[text, n_mels]`).
    pub fn plan(&self, tokens: &Tensor, text: &Packed) -> (Tensor, Tensor) {
        let (hidden, mean) = self.encoder.forward(tokens, text, self.kind, false);
        (self.duration.forward(&hidden, text, false).squeeze_dim(1).exp(), mean)
    }

    /// Mel frames (normalised) from aligned means, following the flow from scaled noise.
    pub fn decode(&self, aligned: &Tensor, frames: &Packed, steps: usize, temperature: f64) -> Tensor {
        let velocity = |x: &Tensor, time: f64| {
            let times = Tensor::full([frames.capacity()], time, (Kind::Float, aligned.device()));
            self.decoder.forward(x, aligned, &times, frames, self.kind)
        };
        flow::sample(aligned.randn_like() * temperature, steps, velocity)
    }

    /// The packed token index of every frame, as the search finds it: for pictures of alignments.
    pub fn align(&self, batch: &Batch) -> Tensor {
        let (_, mean) = self.encoder.forward(&batch.tokens, &batch.text, self.kind, false);
        self.aligner.search(&mean, &batch.mel, &batch.text, &batch.frames)
    }
}
