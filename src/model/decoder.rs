//! Flow-matching decoder: the velocity field of a mel frame, given the noisy frame, the aligned text and the time.
//! Transformer blocks with adaptive layer norm (DiT, Peebles & Xie 2023) and a convolutional feed-forward (ConvNeXt).
//! No dropout: every draw of noise and time is a new example, and blocks without chance can be computed again.

use super::layers::{Attention, Conv, Linear, Rotary, plain_norm};
use crate::config;
use crate::feed::Packed;
use tch::nn::Path;
use tch::{Kind, Tensor};

/// Channels of the sinusoidal time embedding.
const TIME_CHANNELS: i64 = 128;

pub struct Decoder {
    input: Linear,
    time_in: Linear,
    time_out: Linear,
    blocks: Vec<Block>,
    final_modulation: Linear,
    output: Linear,
    head_dim: i64,
}

struct Block {
    /// Scale, shift and gate for each half of the block.
    modulation: Linear,
    attention: Attention,
    depthwise: Conv,
    widen: Linear,
    narrow: Linear,
}

impl Decoder {
    pub fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.decoder_dim;
        Decoder {
            input: Linear::new(&path / "input", 2 * config.n_mels, dim),
            time_in: Linear::new(&path / "time_in", TIME_CHANNELS, dim),
            time_out: Linear::new(&path / "time_out", dim, dim),
            blocks: (0..config.decoder_layers).map(|i| Block::new(&path / "block" / i, config)).collect(),
            final_modulation: Linear::zero(&path / "final_modulation", dim, 2 * dim),
            output: Linear::zero(&path / "output", dim, config.n_mels),
            head_dim: dim / config.decoder_heads,
        }
    }

    /// # Shapes
    /// - noisy, aligned: `[frames, n_mels]`, f32
    /// - time: `[capacity]`, 0 is noise and 1 is speech
    /// - output: velocity `[frames, n_mels]`, f32
    pub fn forward(&self, noisy: &Tensor, aligned: &Tensor, time: &Tensor, seqs: &Packed, kind: Kind) -> Tensor {
        let condition = self.condition(time, kind);
        let rotary = Rotary::new(&seqs.position, self.head_dim, kind);
        let first = self.enter(noisy, aligned, kind);
        let last = self.blocks.iter().fold(first, |x, block| block.forward(&x, &condition, &rotary, seqs));
        self.leave(&last, &condition, seqs)
    }

    /// Forward and backward with the memory of one block instead of all: blocks run without a graph, and again with
    /// one when their gradient is due. `loss` is a function of the velocity; returned with it is its gradient by
    /// `aligned`, for the encoder. Costs one forward pass of the blocks more.
    pub fn backward(
        &self,
        noisy: &Tensor,
        aligned: &Tensor,
        time: &Tensor,
        seqs: &Packed,
        kind: Kind,
        loss: impl FnOnce(&Tensor) -> Tensor,
    ) -> (Tensor, Tensor) {
        let rotary = Rotary::new(&seqs.position, self.head_dim, kind);
        let (aligned, condition) = (leaf(aligned), self.condition(time, kind));
        let (first, shared) = (self.enter(noisy, &aligned, kind), leaf(&condition));
        let mut inputs = vec![first.detach()];
        for block in &self.blocks {
            let next = tch::no_grad(|| block.forward(inputs.last().expect("starts with one"), &shared, &rotary, seqs));
            inputs.push(next);
        }
        let last = leaf(&inputs.pop().expect("one more than blocks"));
        let loss = loss(&self.leave(&last, &shared, seqs));
        loss.backward();
        let mut gradient = last.grad();
        for (block, input) in self.blocks.iter().rev().zip(inputs.iter().rev()) {
            let input = leaf(input);
            along(&block.forward(&input, &shared, &rotary, seqs), &gradient).backward();
            gradient = input.grad();
        }
        (along(&first, &gradient) + along(&condition, &shared.grad())).backward();
        (loss.detach(), aligned.grad())
    }

    fn enter(&self, noisy: &Tensor, aligned: &Tensor, kind: Kind) -> Tensor {
        self.input.forward(&Tensor::cat(&[noisy, aligned], 1).to_kind(kind))
    }

    fn leave(&self, x: &Tensor, condition: &Tensor, seqs: &Packed) -> Tensor {
        let parts = per_frame(&self.final_modulation.forward(condition), 2, seqs);
        self.output.forward(&modulate(x, &parts[0], &parts[1])).to_kind(Kind::Float)
    }

    /// One vector for each utterance, and a last one for the gaps.
    fn condition(&self, time: &Tensor, kind: Kind) -> Tensor {
        let time = Tensor::cat(&[time, &time.new_zeros([1], (Kind::Float, time.device()))], 0);
        let embedded = sinusoidal(&time).to_kind(kind);
        self.time_out.forward(&self.time_in.forward(&embedded).silu()).silu()
    }
}

impl Block {
    fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.decoder_dim;
        Block {
            modulation: Linear::zero(&path / "modulation", dim, 6 * dim),
            attention: Attention::new(&path / "attention", dim, config.decoder_heads),
            depthwise: Conv::depthwise(&path / "depthwise", dim, 7),
            widen: Linear::new(&path / "widen", dim, 4 * dim),
            narrow: Linear::new(&path / "narrow", 4 * dim, dim),
        }
    }

    fn forward(&self, x: &Tensor, condition: &Tensor, rotary: &Rotary, seqs: &Packed) -> Tensor {
        let m = per_frame(&self.modulation.forward(condition), 6, seqs);
        let x = x + self.attention.forward(&modulate(x, &m[0], &m[1]), rotary, seqs) * &m[2];
        let local = self.depthwise.forward(&modulate(&x, &m[3], &m[4]), seqs);
        let wide = self.widen.forward(&local).gelu("tanh");
        &x + self.narrow.forward(&wide) * &m[5]
    }
}

/// The same values, cut off from what made them, and collecting a gradient.
fn leaf(tensor: &Tensor) -> Tensor {
    tensor.detach().set_requires_grad(true)
}

/// A number whose gradient by `output` is `gradient`.
fn along(output: &Tensor, gradient: &Tensor) -> Tensor {
    (output * gradient).sum(Kind::Float)
}

/// Splits `[capacity + 1, parts * dim]` and gives every frame the row of its utterance.
fn per_frame(modulation: &Tensor, parts: i64, seqs: &Packed) -> Vec<Tensor> {
    modulation.chunk(parts, 1).into_iter().map(|part| part.index_select(0, &seqs.owner)).collect()
}

fn modulate(x: &Tensor, scale: &Tensor, shift: &Tensor) -> Tensor {
    plain_norm(x) * (scale + 1.0) + shift
}

/// `[n]` in 0..1 to `[n, TIME_CHANNELS]`. The factor 1000 spreads the unit interval over the wavelengths.
fn sinusoidal(time: &Tensor) -> Tensor {
    let half = TIME_CHANNELS / 2;
    let exponent = Tensor::arange(half, (Kind::Float, time.device())) * (-(10_000f64.ln()) / (half - 1) as f64);
    let angle = time.unsqueeze(1) * 1000.0 * exponent.exp().unsqueeze(0);
    Tensor::cat(&[angle.sin(), angle.cos()], 1)
}
