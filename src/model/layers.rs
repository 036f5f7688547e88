//! Building blocks on packed sequences `[len, channels]`. Weights are f32; each layer computes in the kind of its
//! input, so mixed precision is one cast at the model's entry. Norms compute in f32.

use super::conv;
use super::graph::GraphWriter;
use super::track::{Track, rotary_tables};
use host::onnx::{Attribute, Kind as Number, Value};
use std::sync::OnceLock;
use tch::nn::{Init, Path};
use tch::{Kind, Tensor};
use torchx::{Int8Weight, Then, fused, narrowed, product};

pub(super) const FIXED: &str = "shapes and kinds are fixed by construction";

pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    /// The weight in eight bits, for speech on a CPU: once it is there, it is what products are made with.
    rounded: OnceLock<Box<Int8Weight>>,
}

impl Linear {
    pub fn new(path: Path, from: i64, to: i64) -> Self {
        let full = Linear::full_precision(path, from, to);
        Linear { weight: product(full.weight), ..full }
    }

    /// For input in f32: its weights are never narrowed.
    pub fn full_precision(path: Path, from: i64, to: i64) -> Self {
        let weight = path.var("weight", &[to, from], uniform_by_fan_in(from));
        Linear { weight, bias: Some(path.var("bias", &[to], Init::Const(0.0))), rounded: OnceLock::new() }
    }

    /// Without a bias: inside residual blocks it is hardly missed, and its gradient is a sum over all rows.
    pub fn plain(path: Path, from: i64, to: i64) -> Self {
        let weight = product(path.var("weight", &[to, from], uniform_by_fan_in(from)));
        Linear { weight, bias: None, rounded: OnceLock::new() }
    }

    /// Starts as zero, so that what it feeds begins as if it were not there.
    pub fn zero(path: Path, from: i64, to: i64) -> Self {
        let weight = product(path.var("weight", &[to, from], Init::Const(0.0)));
        Linear { weight, bias: Some(path.var("bias", &[to], Init::Const(0.0))), rounded: OnceLock::new() }
    }

    /// From now on products are made in eight bits, where this processor can. The weights must be there, and stay.
    pub fn round(&self) {
        if let Some(rounded) = Int8Weight::new(&self.weight) {
            let _ = self.rounded.set(Box::new(rounded));
        }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        if let Some(rounded) = self.rounded.get() {
            return rounded.forward(x, self.bias.as_ref(), Then::Nothing).expect(FIXED);
        }
        let bias = self.bias.as_ref().map(|bias| narrowed(bias, x.kind()));
        fused::linear(x, &narrowed(&self.weight, x.kind()), bias.as_ref()).expect(FIXED)
    }

    /// Weight and bias in the kind of the activations.
    pub fn narrowed(&self, kind: Kind) -> [Tensor; 2] {
        [&self.weight, self.bias.as_ref().expect("a layer with a bias")].map(|weight| narrowed(weight, kind))
    }

    /// Channels that come out.
    pub fn width(&self) -> i64 {
        self.weight.size()[0]
    }

    /// `gelu(linear(x))`, on rows of any shape.
    pub fn forward_gelu(&self, x: &Tensor) -> Tensor {
        if let Some(rounded) = self.rounded.get() {
            return rounded.forward(x, self.bias.as_ref(), Then::Gelu).expect(FIXED);
        }
        let wide = fused::linear(x, &narrowed(&self.weight, x.kind()), None).expect(FIXED);
        let rows = wide.view([-1, self.width()]);
        fused::bias_gelu(&rows, self.bias.as_ref().expect("a layer before GELU has a bias"))
            .expect(FIXED)
            .view(wide.size().as_slice())
    }

    pub fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let Linear { weight, bias, rounded: _ } = self;
        let product = g.product(x, weight);
        with_bias(product, bias.as_ref(), g)
    }

    /// A layer of full precision.
    pub fn graph_full_precision(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let Linear { weight, bias, rounded: _ } = self;
        let product = g.product_of(x, weight, weight, g.precision().exact());
        with_bias(product, bias.as_ref(), g)
    }

    /// The last `count` of the layer's channels.
    pub fn graph_last(&self, x: &Value, count: i64, g: &mut GraphWriter) -> Value {
        let Linear { weight, bias, rounded: _ } = self;
        let first = self.width() - count;
        let product = g.product_of(x, weight, &weight.narrow(0, first, count), g.precision());
        match bias {
            Some(bias) => {
                let bias = g.weight_of(bias, &bias.narrow(0, first, count));
                g.add(&product, &bias)
            }
            None => product,
        }
    }

    /// What the layer adds where its input is nothing.
    pub fn graph_bias(&self, to: &Value, g: &mut GraphWriter) -> Value {
        with_bias(to.clone(), self.bias.as_ref(), g)
    }

    /// Says that the layer was computed beforehand.
    pub fn fold(&self, g: &mut GraphWriter) {
        let Linear { weight, bias, rounded: _ } = self;
        [Some(weight), bias.as_ref()].into_iter().flatten().for_each(|weight| {
            g.folded(weight);
        });
    }
}

fn with_bias(product: Value, bias: Option<&Tensor>, g: &mut GraphWriter) -> Value {
    match bias {
        Some(bias) => {
            let bias = g.weight(bias);
            g.add(&product, &bias)
        }
        None => product,
    }
}

/// One-dimensional convolution of odd kernel. An utterance sees silence beside it, never its neighbour: the gap is wider
/// than half the kernel.
pub struct Conv(conv::Conv);

impl Conv {
    pub fn new(path: Path, from: i64, to: i64, kernel: i64) -> Self {
        check_reach(kernel);
        Conv(conv::Conv::full_precision(path, from, to, kernel))
    }

    pub fn weights(&self) -> fused::Weights<'_> {
        self.0.weights()
    }

    pub fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let Conv(conv) = self;
        conv.graph(x, g)
    }
}

/// The same with a filter of its own for every channel.
pub struct Depthwise {
    weight: Tensor,
    bias: Tensor,
}

impl Depthwise {
    pub fn new(path: Path, channels: i64, kernel: i64) -> Self {
        check_reach(kernel);
        let weight = path.var("weight", &[channels, 1, kernel], uniform_by_fan_in(kernel));
        Depthwise { weight, bias: path.var("bias", &[channels], Init::Const(0.0)) }
    }

    pub fn forward(&self, x: &Tensor, track: &Track) -> Tensor {
        fused::depthwise(x, &self.weight, &self.bias, &track.spans).expect(FIXED)
    }

    pub fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let Depthwise { weight, bias } = self;
        g.depthwise(x, weight, bias)
    }
}

fn check_reach(kernel: i64) {
    assert!(kernel / 2 < host::loader::GAP as i64, "the gap between utterances must cover half of every kernel");
}

pub fn uniform_by_fan_in(fan_in: i64) -> Init {
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

    /// Of any shape.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (weight, bias) = (narrowed(&self.weight, x.kind()), narrowed(&self.bias, x.kind()));
        x.layer_norm(weight.size(), Some(&weight), Some(&bias), 1e-5, true)
    }

    /// The norm of rows, and the rows themselves for a residual around what follows.
    pub fn forward_beside(&self, x: &Tensor) -> [Tensor; 2] {
        fused::norm(x, self.weights()).expect(FIXED)
    }

    pub fn weights(&self) -> fused::Weights<'_> {
        fused::Weights { weight: &self.weight, bias: &self.bias }
    }

    pub fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let LayerNorm { weight, bias } = self;
        let (weight, bias) = (g.weight(weight), g.weight(bias));
        g.layer_norm(x, &weight, &bias)
    }
}

/// A layer norm whose scale and shift are each utterance's own, and `x` for the residual around it; `table`:
/// `[capacity + 1, 2 * channels]`.
pub fn modulated_norm(x: &Tensor, table: &Tensor, track: &Track) -> [Tensor; 2] {
    fused::adaln(x, table, &track.spans).expect(FIXED)
}

/// Adds `y`, weighted channel by channel as its utterance says; gaps become zero. `table`: `[capacity + 1, channels]`.
pub fn gated_add(x: &Tensor, y: &Tensor, table: &Tensor, track: &Track) -> Tensor {
    fused::gated_add(x, y, table, &track.spans).expect(FIXED)
}

/// Rotary position tables of one axis, shared by all layers (Su et al. 2021; halves, as in GPT-NeoX).
pub struct Rotary {
    /// `[len, head_dim / 2]`, f32.
    pub(super) cos: Tensor,
    pub(super) sin: Tensor,
}

impl Rotary {
    pub fn new(track: &Track, head_dim: i64) -> Self {
        let (position, half) = (&track.seqs.position, head_dim / 2);
        let slope = -(10_000f64.ln()) / half as f64;
        if position.device().is_cuda() {
            let [cos, sin] = rotary_tables(track.seqs, half, slope).expect(FIXED);
            return Rotary { cos, sin };
        }
        let exponent = Tensor::arange(half, (Kind::Float, position.device())) * slope;
        let angle = position.to_kind(Kind::Float).unsqueeze(1) * exponent.exp().unsqueeze(0);
        Rotary { cos: angle.cos(), sin: angle.sin() }
    }
}

/// The same in a graph, each half's twice: `[rows, head_dim]`. With it the turn of `x` is `x * cos + swapped(x) * sin`.
pub struct GraphRotary {
    pub cos: Value,
    /// Negative for the first half.
    pub sin: Value,
}

impl GraphRotary {
    /// `rows`: `[1]`, how many.
    pub fn new(rows: &Value, head_dim: i64, g: &mut GraphWriter) -> Self {
        let half = head_dim / 2;
        let slope = -(10_000f64.ln()) / half as f64;
        let frequency: Vec<f32> = (0..half).map(|i| (i as f32 * slope as f32).exp()).collect();
        let (position, frequency) = (g.range(rows), g.floats(&[1, half as usize], &frequency));
        let position = g.cast(&position, Number::F32);
        let position = g.unsqueeze(&position, 1);
        let angle = g.mul(&position, &frequency);
        let (cos, sin) = (g.op("Cos", &[&angle], vec![]), g.op("Sin", &[&angle], vec![]));
        let against = g.op("Neg", &[&sin], vec![]);
        GraphRotary { cos: g.concat(&[&cos, &cos], 1), sin: g.concat(&[&against, &sin], 1) }
    }

    /// Those of the first `rows` (`[1]`).
    pub fn first(&self, rows: &Value, g: &mut GraphWriter) -> Self {
        let zero = g.ints(&[0]);
        let [cos, sin] = [&self.cos, &self.sin].map(|table| g.slice(table, &zero, rows, 0));
        GraphRotary { cos, sin }
    }

    /// `x`: `[…, rows, head_dim]`.
    fn turn(&self, x: &Value, head_dim: i64, g: &mut GraphWriter) -> Value {
        let halves = g.split(x, &[head_dim / 2, head_dim / 2], -1);
        let swapped = g.concat(&[&halves[1], &halves[0]], -1);
        let (along, across) = (g.mul(x, &self.cos), g.mul(&swapped, &self.sin));
        g.add(&along, &across)
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
        let qkv = Linear::plain(&path / "qkv", channels, 3 * channels);
        Attention { qkv, out: Linear::plain(&path / "out", channels, channels), heads }
    }

    pub fn forward(&self, x: &Tensor, rotary: &Rotary, track: &Track) -> Tensor {
        let (len, channels) = x.size2().expect("packed input is [len, channels]");
        let qkv = self.qkv.forward(x).view([len, 3, self.heads, channels / self.heads]);
        let (Rotary { cos, sin }, seqs) = (rotary, track.seqs);
        let mixed = fused::attention(&qkv, [cos, sin], &seqs.cu_seqlens, seqs.longest_segment, &track.spans);
        self.out.forward(&mixed.expect(FIXED))
    }

    pub fn round(&self) {
        [&self.qkv, &self.out].into_iter().for_each(Linear::round);
    }

    pub fn graph(&self, x: &Value, rotary: &GraphRotary, g: &mut GraphWriter) -> Value {
        let Attention { qkv, out, heads } = self;
        let (channels, heads) = (out.width(), *heads);
        let head_dim = channels / heads;
        let each = qkv.graph(x, g);
        let each = g.reshape(&each, &[-1, 3, heads, head_dim]);
        let each = g.transpose(&each, &[1, 2, 0, 3]);
        let parts = g.split(&each, &[2, 1], 0);
        let turned = rotary.turn(&parts[0], head_dim, g);
        let (queries_keys, values) = (g.split(&turned, &[1, 1], 0), &parts[1]);
        let scale = g.float((head_dim as f64).powf(-0.5));
        let (queries, keys) = (g.mul(&queries_keys[0], &scale), g.transpose(&queries_keys[1], &[0, 1, 3, 2]));
        let scores = g.op("MatMul", &[&queries, &keys], vec![]);
        let weights = g.op("Softmax", &[&scores], vec![("axis", Attribute::Int(-1))]);
        let mixed = g.op("MatMul", &[&weights, values], vec![]);
        let mixed = g.transpose(&mixed, &[0, 2, 1, 3]);
        let mixed = g.reshape(&mixed, &[-1, channels]);
        out.graph(&mixed, g)
    }
}

/// Two layers with a wide middle.
pub struct FeedForward {
    widen: Linear,
    narrow: Linear,
}

impl FeedForward {
    pub fn new(path: Path, channels: i64) -> Self {
        let widen = Linear::new(&path / "widen", channels, 4 * channels);
        FeedForward { widen, narrow: Linear::plain(&path / "narrow", 4 * channels, channels) }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.narrow.forward(&self.widen.forward_gelu(x))
    }

    pub fn round(&self) {
        [&self.widen, &self.narrow].into_iter().for_each(Linear::round);
    }

    pub fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let FeedForward { widen, narrow } = self;
        let wide = widen.graph(x, g);
        let wide = g.gelu(&wide);
        narrow.graph(&wide, g)
    }
}

/// A row of its own for each of `rows` things.
pub fn embedding(path: &Path, rows: i64, channels: i64) -> Tensor {
    path.var("embedding", &[rows, channels], Init::Randn { mean: 0.0, stdev: (channels as f64).powf(-0.5) })
}

/// The rows of `table` at `index`, times `scale`.
pub fn embedded(table: &Tensor, index: &Tensor, scale: f64, kind: Kind) -> Tensor {
    fused::embed(table, index, scale, kind).expect(FIXED)
}
