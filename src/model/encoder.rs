//! Text encoder and duration predictor. After Matcha-TTS §2.2 (Mehta et al. 2024): convolutional prenet, rotary
//! transformer with convolutional feed-forward, projection to the mean mel frame of each token.

use super::layers::{Attention, Conv, LayerNorm, Linear, Rotary, embedding};
use crate::config;
use crate::feed::Packed;
use tch::nn::Path;
use tch::{Kind, Tensor};

pub struct Encoder {
    embedding: Tensor,
    prenet: Vec<(Conv, LayerNorm)>,
    blocks: Vec<Block>,
    norm: LayerNorm,
    mean: Linear,
    head_dim: i64,
    dropout: f64,
}

struct Block {
    attention_norm: LayerNorm,
    attention: Attention,
    feed_forward_norm: LayerNorm,
    widen: Conv,
    narrow: Conv,
}

impl Encoder {
    pub fn new(path: Path, config: &config::Model, vocab_size: i64) -> Self {
        let dim = config.text_dim;
        let prenet = |i| (Conv::new(&path / "prenet" / i, dim, dim, 5), LayerNorm::new(&path / "prenet_norm" / i, dim));
        Encoder {
            embedding: embedding(&path, vocab_size, dim),
            prenet: (0..2).map(prenet).collect(),
            blocks: (0..config.text_layers).map(|i| Block::new(&path / "block" / i, config)).collect(),
            norm: LayerNorm::new(&path / "norm", dim),
            mean: Linear::new(&path / "mean", dim, config.n_mels),
            head_dim: dim / config.text_heads,
            dropout: config.dropout,
        }
    }

    /// # Shapes
    /// - tokens: `[text]`
    /// - output: hidden states `[text, text_dim]` in `kind`, and mean mel frames `[text, n_mels]` in f32
    pub fn forward(&self, tokens: &Tensor, seqs: &Packed, kind: Kind, train: bool) -> (Tensor, Tensor) {
        let dim = self.embedding.size()[1] as f64;
        let mut x = (self.embedding.index_select(0, tokens) * dim.sqrt()).to_kind(kind);
        for (conv, norm) in &self.prenet {
            x = &x + norm.forward(&conv.forward(&x, seqs).relu()).dropout(self.dropout, train);
        }
        let rotary = Rotary::new(&seqs.position, self.head_dim, kind);
        for block in &self.blocks {
            x = block.forward(&x, &rotary, seqs, self.dropout, train);
        }
        let hidden = self.norm.forward(&x);
        let mean = self.mean.forward(&hidden).to_kind(Kind::Float);
        (hidden, mean)
    }
}

impl Block {
    fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.text_dim;
        Block {
            attention_norm: LayerNorm::new(&path / "attention_norm", dim),
            attention: Attention::new(&path / "attention", dim, config.text_heads),
            feed_forward_norm: LayerNorm::new(&path / "feed_forward_norm", dim),
            widen: Conv::new(&path / "widen", dim, 4 * dim, 3),
            narrow: Conv::new(&path / "narrow", 4 * dim, dim, 3),
        }
    }

    fn forward(&self, x: &Tensor, rotary: &Rotary, seqs: &Packed, dropout: f64, train: bool) -> Tensor {
        let x = x + self.attention.forward(&self.attention_norm.forward(x), rotary, seqs).dropout(dropout, train);
        let wide = self.widen.forward(&self.feed_forward_norm.forward(&x), seqs).relu();
        &x + self.narrow.forward(&wide, seqs).dropout(dropout, train)
    }
}

/// Logarithm of each token's frame count, from hidden states that it does not train.
pub struct DurationPredictor {
    layers: Vec<(Conv, LayerNorm)>,
    out: Linear,
    dropout: f64,
}

impl DurationPredictor {
    pub fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.text_dim;
        let layer = |i| (Conv::new(&path / "conv" / i, dim, dim, 3), LayerNorm::new(&path / "norm" / i, dim));
        let out = Linear::new(&path / "out", dim, 1);
        DurationPredictor { layers: (0..2).map(layer).collect(), out, dropout: config.dropout }
    }

    /// `[text, 1]`, f32.
    pub fn forward(&self, hidden: &Tensor, seqs: &Packed, train: bool) -> Tensor {
        let mut x = hidden.detach();
        for (conv, norm) in &self.layers {
            x = norm.forward(&conv.forward(&x, seqs).relu()).dropout(self.dropout, train);
        }
        self.out.forward(&x).to_kind(Kind::Float)
    }
}
