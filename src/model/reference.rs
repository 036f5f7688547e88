//! Who speaks: a slice of recorded speech to a few latent vectors, without a transcript. Convolutions and a small
//! transformer listen; a Perceiver resampler (Jaegle et al. 2021; Casanova et al. 2024, XTTS) answers a fixed number of
//! learned questions, whatever the slice's length.
//!
//! Each reader gets the latents where they are cheap. Text attends to them (a token may ask how this voice says it, and
//! text is a fifth as long as speech); durations and the decoder's norms read their mean.

use super::conv::Conv;
use super::layers::{CrossAttention, FeedForward, LayerNorm, Linear};
use super::track::with_gap_row;
use host::config;
use tch::nn::{Init, Path};
use tch::{Kind, Tensor};
use torchx::narrowed;

/// Rounds of questions.
const ROUNDS: i64 = 2;
/// Similarities are divided by this before the softmax of the contrastive loss (as in SimCLR, Chen et al. 2020).
const CONTRAST_TEMPERATURE: f64 = 0.1;

pub struct ReferenceEncoder {
    /// Each halves the rate.
    strided: [Conv; 2],
    layers: Vec<Layer>,
    /// `[voice_latents, voice_dim]`
    questions: Tensor,
    rounds: Vec<Layer>,
    norm: LayerNorm,
}

/// Attention to oneself or to a memory, then a feed-forward.
struct Layer {
    attention_norm: LayerNorm,
    attention: CrossAttention,
    feed_forward_norm: LayerNorm,
    feed_forward: FeedForward,
}

impl ReferenceEncoder {
    pub fn new(path: Path, config: &config::Model) -> Self {
        let (dim, n_mels) = (config.voice_dim, config.n_mels);
        let halving = |path: Path, from: i64| Conv::new(path, from, dim, &[5], &[2]);
        let layer = |path: Path| Layer::new(path, dim);
        let spread = Init::Randn { mean: 0.0, stdev: 1.0 };
        ReferenceEncoder {
            strided: [halving(&path / "strided" / 0, n_mels), halving(&path / "strided" / 1, dim)],
            layers: (0..config.voice_layers).map(|i| layer(&path / "layer" / i)).collect(),
            questions: path.var("questions", &[config.voice_latents, dim], spread),
            rounds: (0..ROUNDS).map(|i| layer(&path / "round" / i)).collect(),
            norm: LayerNorm::new(&path / "norm", dim),
        }
    }

    /// # Shapes
    /// - reference: `[slices, frames, n_mels]`, normalised
    /// - output: `[slices, voice_latents, voice_dim]`
    pub fn forward(&self, reference: &Tensor, kind: Kind) -> Tensor {
        let frames = reference.to_kind(kind).transpose(1, 2);
        let heard = self.strided.iter().fold(frames, |x, conv| conv.forward(&x).gelu("tanh"));
        let heard = self.layers.iter().fold(heard.transpose(1, 2), |x, layer| layer.forward(&x, None));
        let questions = narrowed(&self.questions, kind).unsqueeze(0).expand([heard.size()[0], -1, -1], false);
        let answers = self.rounds.iter().fold(questions, |x, round| round.forward(&x, Some(&heard)));
        self.norm.forward(&answers)
    }

    /// How well the two halves of a reference find each other among those of all others: nats, after InfoNCE
    /// (van den Oord et al. 2018). `used`: `[slices]`, 1 where there is an utterance.
    pub fn contrast(&self, reference: &Tensor, used: &Tensor, kind: Kind) -> Tensor {
        let half = reference.size()[1] / 2;
        let views = [reference.narrow(1, 0, half), reference.narrow(1, half, half)];
        let points = pooled(&self.forward(&Tensor::cat(&views, 0), kind)).to_kind(Kind::Float);
        let points = &points / points.norm_scalaropt_dim(2, [1i64].as_slice(), true).clamp_min(1e-6);
        let sides = points.chunk(2, 0);
        let absent = (used - 1.0) * 1e4;
        let scores = sides[0].matmul(&sides[1].transpose(0, 1)) / CONTRAST_TEMPERATURE;
        let surprise = |scores: &Tensor| -(scores + absent.unsqueeze(0)).log_softmax(1, Kind::Float).diagonal(0, 0, 1);
        let both = (surprise(&scores) + surprise(&scores.transpose(0, 1))) * 0.5;
        (both * used).sum(Kind::Float) / used.sum(Kind::Float).clamp_min(1.0)
    }
}

impl Layer {
    fn new(path: Path, dim: i64) -> Self {
        Layer {
            attention_norm: LayerNorm::new(&path / "attention_norm", dim),
            attention: CrossAttention::new(&path / "attention", dim, dim, dim / config::VOICE_HEAD_CHANNELS),
            feed_forward_norm: LayerNorm::new(&path / "feed_forward_norm", dim),
            feed_forward: FeedForward::new(&path / "feed_forward", dim),
        }
    }

    fn forward(&self, x: &Tensor, memory: Option<&Tensor>) -> Tensor {
        let normal = self.attention_norm.forward(x);
        let x = x + self.attention.forward(&normal, memory.unwrap_or(&normal), None);
        &x + self.feed_forward.forward(&self.feed_forward_norm.forward(&x))
    }
}

/// What the latents have in common: `[slices, voice_dim]`.
pub fn pooled(latents: &Tensor) -> Tensor {
    latents.mean_dim([1i64].as_slice(), false, latents.kind())
}

/// Adds each voice to what a part knows of its utterances, gaps aside.
pub struct VoiceInput {
    linear: Linear,
}

impl VoiceInput {
    pub fn new(path: Path, config: &config::Model, dim: i64) -> Self {
        VoiceInput { linear: Linear::new(path, config.voice_dim, dim) }
    }

    /// `[utterances, voice_latents, voice_dim]` → `[utterances + 1, dim]`
    pub fn forward(&self, latents: &Tensor) -> Tensor {
        with_gap_row(&self.linear.forward(&pooled(latents)))
    }
}
