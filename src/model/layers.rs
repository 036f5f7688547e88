//! Building blocks on packed sequences `[len, channels]`. Weights are f32; each layer computes in the kind of its
//! input, so mixed precision is one cast at the model's entry. Norms compute in f32.

use crate::feed::Packed;
use tch::nn::{Init, Path, init};
use tch::{Kind, Tensor};

pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    pub fn new(path: Path, from: i64, to: i64) -> Self {
        let weight = path.var("weight", &[to, from], uniform_by_fan_in(from));
        Linear { weight, bias: path.var("bias", &[to], Init::Const(0.0)) }
    }

    /// Starts as zero, so that what it feeds begins as if it were not there.
    pub fn zero(path: Path, from: i64, to: i64) -> Self {
        let weight = path.var("weight", &[to, from], Init::Const(0.0));
        Linear { weight, bias: path.var("bias", &[to], Init::Const(0.0)) }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight.to_kind(x.kind()), Some(self.bias.to_kind(x.kind())))
    }
}

/// One-dimensional convolution of odd kernel. Gaps are zeroed first, so an utterance sees silence beside it, never its
/// neighbour: the gap is wider than half the kernel.
pub struct Conv {
    weight: Tensor,
    bias: Tensor,
    groups: i64,
}

impl Conv {
    pub fn new(path: Path, from: i64, to: i64, kernel: i64) -> Self {
        Self::grouped(path, from, to, kernel, 1)
    }

    /// A filter of its own for every channel.
    pub fn depthwise(path: Path, channels: i64, kernel: i64) -> Self {
        Self::grouped(path, channels, channels, kernel, channels)
    }

    fn grouped(path: Path, from: i64, to: i64, kernel: i64, groups: i64) -> Self {
        assert!(kernel / 2 < crate::loader::GAP as i64, "the gap between utterances must cover half of every kernel");
        let fan_in = from / groups * kernel;
        let weight = path.var("weight", &[to, from / groups, kernel], uniform_by_fan_in(fan_in));
        Conv { weight, bias: path.var("bias", &[to], Init::Const(0.0)), groups }
    }

    pub fn forward(&self, x: &Tensor, seqs: &Packed) -> Tensor {
        let (weight, bias) = (self.weight.to_kind(x.kind()), self.bias.to_kind(x.kind()));
        let half = self.weight.size()[2] / 2;
        let x = (x * seqs.mask.to_kind(x.kind())).transpose(0, 1).unsqueeze(0);
        x.conv1d(&weight, Some(&bias), [1], [half], [1], self.groups).squeeze_dim(0).transpose(0, 1)
    }
}

fn uniform_by_fan_in(fan_in: i64) -> Init {
    let bound = 1.0 / (fan_in as f64).sqrt();
    Init::Uniform { lo: -bound, up: bound }
}

pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    pub fn new(path: Path, channels: i64) -> Self {
        let weight = path.var("weight", &[channels], Init::Const(1.0));
        LayerNorm { weight, bias: path.var("bias", &[channels], Init::Const(0.0)) }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let weight = self.weight.to_kind(x.kind());
        x.layer_norm(weight.size(), Some(&weight), Some(&self.bias.to_kind(x.kind())), 1e-5, true)
    }
}

/// A layer norm whose scale and shift come from outside.
pub fn plain_norm(x: &Tensor) -> Tensor {
    x.layer_norm([x.size()[1]], None::<&Tensor>, None::<&Tensor>, 1e-5, true)
}

/// Rotary position tables of one axis, shared by all layers (Su et al. 2021; halves, as in GPT-NeoX).
pub struct Rotary {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    pub fn new(position: &Tensor, head_dim: i64, kind: Kind) -> Self {
        let half = head_dim / 2;
        let exponent = Tensor::arange(half, (Kind::Float, position.device())) * (-(10_000f64.ln()) / half as f64);
        let angle = position.to_kind(Kind::Float).unsqueeze(1) * exponent.exp().unsqueeze(0);
        let table = |part: Tensor| part.unsqueeze(1).to_kind(kind);
        Rotary { cos: table(angle.cos()), sin: table(angle.sin()) }
    }

    /// `x`: `[len, heads, head_dim]`.
    fn turn(&self, x: &Tensor) -> Tensor {
        let halves = x.chunk(2, -1);
        let (a, b) = (&halves[0], &halves[1]);
        Tensor::cat(&[a * &self.cos - b * &self.sin, a * &self.sin + b * &self.cos], -1)
    }
}

/// Self attention inside each utterance.
pub struct Attention {
    qkv: Linear,
    out: Linear,
    heads: i64,
}

impl Attention {
    pub fn new(path: Path, channels: i64, heads: i64) -> Self {
        let qkv = Linear::new(&path / "qkv", channels, 3 * channels);
        Attention { qkv, out: Linear::new(&path / "out", channels, channels), heads }
    }

    pub fn forward(&self, x: &Tensor, rotary: &Rotary, seqs: &Packed) -> Tensor {
        let (len, channels) = x.size2().expect("packed input is [len, channels]");
        let parts = self.qkv.forward(x).view([len, 3, self.heads, channels / self.heads]).unbind(1);
        let (q, k) = (rotary.turn(&parts[0]), rotary.turn(&parts[1]));
        let mixed = torchx::varlen_attention(&q, &k, &parts[2], &seqs.cu_seqlens, seqs.longest_segment, None)
            .expect("shapes and kinds are fixed by construction");
        self.out.forward(&mixed.reshape([len, channels]))
    }
}

/// Xavier-uniform embedding table.
pub fn embedding(path: &Path, rows: i64, channels: i64) -> Tensor {
    path.var("embedding", &[rows, channels], init::Init::Randn { mean: 0.0, stdev: (channels as f64).powf(-0.5) })
}
