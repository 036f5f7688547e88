//! Flow-matching decoder: the velocity field of a mel frame, conditioned on the noisy frame, the content of its token, the
//! time, and context frames of the speaker. A short U-Net: convolutions at the frame rate (ConvNeXt, Liu et al. 2022) around transformer blocks at
//! half of it, all with adaptive layer norm (DiT, Peebles & Xie 2023).
//! No dropout: every draw of noise and time is a new example, and blocks without chance can be computed again.

use super::along;
use super::graph::GraphWriter;
use super::layers::{Attention, Depthwise, FIXED, FeedForward, GraphRotary, Linear, Rotary, gated_add, modulated_norm};
use super::track::{Track, half, with_gap_row};
use crate::feed::Packed;
use host::config;
use host::onnx::Value;
use tch::nn::Path;
use tch::{Kind, Tensor};
use torchx::fused::{self, Infill};
use torchx::gradients;

/// Channels of the sinusoidal time embedding.
const TIME_CHANNELS: i64 = 128;
/// The time at which clean frames are described. Halfway, blocks tell speakers apart best (docs/evaluation.md).
const DESCRIBED_AT: f64 = 0.5;

pub struct Decoder {
    noisy: Linear,
    time_in: Linear,
    time_out: Linear,
    /// Of clean frames. Its bias tells them from generated ones. Absent where the voice does not clone.
    context: Option<Linear>,
    /// Scales, shifts and gates of every block, from the utterance's time: one product for all.
    modulation: Linear,
    first: Local,
    down: Linear,
    blocks: Vec<Block>,
    up: Linear,
    last: Local,
    output: Linear,
    dim: i64,
    head_dim: i64,
}

/// Depthwise convolution and feed-forward.
struct Local {
    depthwise: Depthwise,
    feed_forward: FeedForward,
}

/// Attention, then what `Local` has.
struct Block {
    attention: Attention,
    local: Local,
}

/// What the decoder is conditioned on besides the noisy frames. Copies of an axis share their content.
pub struct Conditioning<'a> {
    /// `[rows, decoder_dim]`, or a copy's share of it.
    pub content: &'a Tensor,
    /// `[rows, 1]`, f32: 0 where content is dropped.
    pub content_mask: &'a Tensor,
    pub context: Option<Context<'a>>,
}

/// Frames that are given clean, in place of noisy ones.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// `[rows, n_mels]`, normalised; what lies outside the mask is not looked at.
    pub mel: &'a Tensor,
    /// `[rows, 1]`, f32: 1 on context frames.
    pub mask: &'a Tensor,
}

/// The two rates of the axis.
pub struct Rates<'a> {
    full: Track<'a>,
    half: Track<'a>,
    /// Positions at half the rate: attention works there alone.
    rotary: Rotary,
}

/// Modulation of one `Local`: scale and shift, gate.
type LocalTables<'a> = &'a [Tensor; 2];

impl Decoder {
    pub fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.decoder_dim;
        let inner = config.decoder_layers - 2;
        // The time of an utterance fits into half the channels.
        let condition = dim / 2;
        Decoder {
            noisy: Linear::new(&path / "noisy", config.n_mels, dim),
            time_in: Linear::new(&path / "time_in", TIME_CHANNELS, condition),
            time_out: Linear::new(&path / "time_out", condition, condition),
            context: config.clones().then(|| Linear::new(&path / "context", config.n_mels, dim)),
            modulation: Linear::zero(&path / "modulation", condition, table_sizes(inner, dim).iter().sum()),
            first: Local::new(&path / "first", dim, 7),
            down: Linear::new(&path / "down", 2 * dim, dim),
            blocks: (0..inner).map(|i| Block::new(&path / "block" / i, config)).collect(),
            up: Linear::new(&path / "up", dim, 2 * dim),
            last: Local::new(&path / "last", dim, 7),
            output: Linear::zero(&path / "output", dim, config.n_mels),
            dim,
            head_dim: dim / config.decoder_heads,
        }
    }

    pub fn n_mels(&self) -> i64 {
        self.output.width()
    }

    /// `tables`: the modulation at the times of the utterances. Both they and the rates may serve for many calls.
    ///
    /// # Shapes
    /// - noisy: `[frames, n_mels]`, f32
    /// - output: velocity `[frames, n_mels]`, f32
    pub fn velocity(&self, noisy: &Tensor, conditioning: &Conditioning, tables: &[Tensor], rates: &Rates) -> Tensor {
        let chain = |stages: &[Stage], x: Tensor| stages.iter().fold(x, |x, stage| stage(&x));
        let outer = chain(&self.outward(tables, rates), self.enter(noisy, conditioning, rates));
        let inner = chain(&self.inward(tables, rates), outer.shallow_clone());
        self.leave(&(outer + inner), tables, rates)
    }

    /// How a speaker sounds to the decoder: its transformer blocks' output over frames that are all given as context, in
    /// the mean. `[decoder_dim]`, f32, of `mel`, `[frames, n_mels]`, normalised. No text is part of it.
    pub fn describe(&self, mel: &Tensor, seqs: &Packed, kind: Kind) -> Tensor {
        let halved = half(seqs);
        let rates = self.rates(seqs, &halved, kind);
        let like = (kind, mel.device());
        let times = Tensor::full([seqs.capacity()], DESCRIBED_AT, (Kind::Float, mel.device()));
        let conditioning = Conditioning {
            content: &Tensor::zeros([seqs.len(), self.dim], like),
            content_mask: &Tensor::zeros([seqs.len(), 1], like),
            context: Some(Context { mel, mask: &seqs.mask }),
        };
        let tables = self.tables(&times, kind);
        let mut stages = self.outward(&tables, &rates);
        stages.extend(self.inward(&tables, &rates));
        let output = stages.iter().fold(self.enter(mel, &conditioning, &rates), |x, stage| stage(&x));
        (output * &seqs.mask).sum_dim_intlist([0i64].as_slice(), false, Kind::Float) / seqs.mask.sum(Kind::Float)
    }

    /// Forward and backward with the memory of one block instead of all: blocks run without a graph, and again with
    /// one when their gradient is due. `loss` is a function of the velocity; returned with it is its gradient by
    /// content, for whoever made that. Costs one forward pass of the blocks more.
    pub fn backward(
        &self,
        noisy: &Tensor,
        conditioning: &Conditioning,
        made: &[Tensor],
        rates: &Rates,
        loss: impl FnOnce(&Tensor) -> Tensor,
    ) -> (Tensor, Tensor) {
        let content = leaf(conditioning.content);
        let conditioning = Conditioning { content: &content, ..*conditioning };
        let tables: Vec<Tensor> = made.iter().map(leaf).collect();
        let entered = self.enter(noisy, &conditioning, rates);

        let (outward, inward) = (self.outward(&tables, rates), self.inward(&tables, rates));
        let (outer_inputs, outer) = run(&outward, &entered);
        let (inner_inputs, inner) = run(&inward, &outer);
        let sum = leaf(&(outer + inner));
        let loss = loss(&self.leave(&sum, &tables, rates));
        loss.backward();
        let by_sum = sum.grad();
        let by_outer = &by_sum + go_back(&inward, &inner_inputs, &by_sum);
        let by_entered = go_back(&outward, &outer_inputs, &by_outer);
        gradients::join_aside().expect(FIXED);
        let by_tables: Tensor = made.iter().zip(&tables).map(|(made, table)| along(made, &table.grad())).sum();
        (along(&entered, &by_entered) + by_tables).backward();
        (loss.detach(), content.grad())
    }

    /// Makes the products of the blocks in eight bits from now on (`Linear::round`). What stands at the ends is small, and
    /// everything passes through it: it stays as it is.
    pub fn round(&self) {
        [&self.down, &self.up].into_iter().for_each(Linear::round);
        self.blocks.iter().for_each(|block| block.attention.round());
        let locals = self.blocks.iter().map(|block| &block.local).chain([&self.first, &self.last]);
        locals.for_each(|local| local.feed_forward.round());
    }

    pub fn rates<'a>(&self, full: &'a Packed, half: &'a Packed, kind: Kind) -> Rates<'a> {
        let half = Track::new(half, kind);
        Rates { full: Track::new(full, kind), rotary: Rotary::new(&half, self.head_dim), half }
    }

    fn enter(&self, noisy: &Tensor, conditioning: &Conditioning, rates: &Rates) -> Tensor {
        let kind = rates.full.mask.kind();
        let Conditioning { content, content_mask, context, .. } = conditioning;
        let (Some(layer), Some(Context { mel, mask })) = (&self.context, context) else {
            let x = self.noisy.forward(&noisy.to_kind(kind));
            let (len, own) = (x.size()[0], content.size()[0]);
            let (x, said) = (x.view([len / own, own, -1]), content_mask.to_kind(kind).view([len / own, own, 1]));
            return x.addcmul(&content.unsqueeze(0), &said).view([len, -1]);
        };
        let ([weight, bias], [clean_weight, clean_bias]) = (self.noisy.narrowed(kind), layer.narrowed(kind));
        let inputs = Infill {
            noisy,
            clean: mel,
            given: mask,
            content,
            said: content_mask,
            noisy_layer: [&weight, &bias],
            clean_layer: [&clean_weight, &clean_bias],
        };
        fused::infill(&inputs).expect(FIXED)
    }

    /// What comes before the skip: one block at the frame rate.
    fn outward<'a>(&'a self, tables: &'a [Tensor], rates: &'a Rates) -> Vec<Stage<'a>> {
        vec![Box::new(|x| self.first.forward(x, pair(tables, 0), &rates.full))]
    }

    /// What the skip goes round: down to half the rate, transformer blocks, and up again.
    fn inward<'a>(&'a self, tables: &'a [Tensor], rates: &'a Rates) -> Vec<Stage<'a>> {
        let dim = self.dim;
        // An odd utterance's last pair holds one frame of the gap, which must say nothing: it is zero.
        let down = move |x: &Tensor| self.down.forward(&x.view([-1, 2 * dim]));
        let blocks = self.blocks.iter().enumerate();
        let block = |(i, block): (usize, &'a Block)| -> Stage<'a> {
            Box::new(move |x| block.forward(x, &tables[4 + 4 * i..][..4], rates))
        };
        let up = move |x: &Tensor| self.up.forward(x).view([-1, dim]);
        let mut stages: Vec<Stage> = vec![Box::new(down)];
        stages.extend(blocks.map(block));
        stages.push(Box::new(up));
        stages
    }

    fn leave(&self, x: &Tensor, tables: &[Tensor], rates: &Rates) -> Tensor {
        let x = self.last.forward(x, pair(tables, 2), &rates.full);
        let [normal, _] = modulated_norm(&x, tables.last().expect("the last is the output's"), &rates.full);
        self.output.forward(&normal).to_kind(Kind::Float)
    }

    /// Modulation of every block in turn (`table_sizes`), each with a row for every utterance and one for gaps. `times`:
    /// `[utterances]`, 0 is noise and 1 is speech.
    pub fn tables(&self, times: &Tensor, kind: Kind) -> Vec<Tensor> {
        let time = self.time_in.forward(&sinusoidal(times).to_kind(kind)).silu();
        let tables = self.modulation.forward(&with_gap_row(&self.time_out.forward(&time).silu()));
        fused::split(&tables, &table_sizes(self.blocks.len() as i64, self.dim)).expect(FIXED)
    }

    /// Modulation at each of these times, computed beforehand: `[times, tables]`. Scales have the 1 in them that norms add.
    pub fn graph_tables(&self, times: &[f64], g: &mut GraphWriter) -> Value {
        let Decoder { time_in, time_out, modulation, .. } = self;
        [time_in, time_out, modulation].iter().for_each(|layer| layer.fold(g));
        let at = Tensor::from_slice(times).to_kind(Kind::Float);
        let scaled = |(i, table): (usize, Tensor)| match i % 2 {
            0 => Tensor::cat(&[table.narrow(1, 0, self.dim) + 1.0, table.narrow(1, self.dim, self.dim)], 1),
            _ => table,
        };
        let tables: Vec<Tensor> = self.tables(&at, Kind::Float).into_iter().enumerate().map(scaled).collect();
        g.values("decoder.tables", &Tensor::cat(&tables, 1).narrow(0, 0, times.len() as i64))
    }

    /// Reference frames (`[frames, n_mels]`, normalised) as they stand in front: `[frames, decoder_dim]`. Absent where the
    /// voice does not clone.
    pub fn graph_context(&self, mel: &Value, g: &mut GraphWriter) -> Option<Value> {
        let context = self.context.as_ref()?.graph_full_precision(mel, g);
        // In place of noise there is nothing, of which the layer's bias remains.
        Some(self.noisy.graph_bias(&context, g))
    }

    /// Positions of so many rows (`[1]`) at half the rate.
    pub fn graph_rotary(&self, rows: &Value, g: &mut GraphWriter) -> GraphRotary {
        GraphRotary::new(rows, self.head_dim, g)
    }

    /// Velocity of frames (`noisy`, `[frames, n_mels]`) behind a reference's. `table`: one time's modulation.
    pub fn graph(
        &self,
        noisy: &Value,
        content: &Value,
        reference: Option<&Value>,
        table: &Value,
        rotary: &GraphRotary,
        g: &mut GraphWriter,
    ) -> Value {
        let Decoder {
            noisy: enter,
            time_in: _,
            time_out: _,
            context: _,
            modulation: _,
            first,
            down,
            blocks,
            up,
            last,
            output,
            dim,
            head_dim: _,
        } = self;
        let parts = table_sizes(blocks.len() as i64, *dim).iter().sum::<i64>() / dim;
        let tables = g.split(table, &vec![*dim; parts as usize], 0);
        let entered = enter.graph_full_precision(noisy, g);
        let entered = g.add(&entered, content);
        let entered = reference.map_or(entered.clone(), |reference| g.concat(&[reference, &entered], 0));
        let outer = first.graph(&entered, &tables[0..3], g);

        let (zero, one, two) = (g.ints(&[0]), g.ints(&[1]), g.ints(&[2]));
        let rows = g.len(&outer, 0);
        let pairs = g.add(&rows, &one);
        let pairs = g.op("Div", &[&pairs, &two], vec![]);
        let even = g.mul(&pairs, &two);
        let silent = g.floats(&[1, *dim as usize], &vec![0.0; *dim as usize]);
        let paired = g.concat(&[&outer, &silent], 0);
        let paired = g.slice(&paired, &zero, &even, 0);
        let paired = g.reshape(&paired, &[-1, 2 * dim]);
        let mut inner = down.graph(&paired, g);
        let rotary = rotary.first(&pairs, g);
        for (i, block) in blocks.iter().enumerate() {
            inner = block.graph(&inner, &tables[6 + 6 * i..][..6], &rotary, g);
        }
        let inner = up.graph(&inner, g);
        let inner = g.reshape(&inner, &[-1, *dim]);
        let inner = g.slice(&inner, &zero, &rows, 0);

        let x = g.add(&outer, &inner);
        let x = last.graph(&x, &tables[3..6], g);
        let x = match reference {
            Some(reference) => {
                let (given, end) = (g.len(reference, 0), g.ints(&[host::onnx::END]));
                g.slice(&x, &given, &end, 0)
            }
            None => x,
        };
        let [scale, shift] = tables.last_chunk().expect("the last are the output's");
        let normal = g.layer_norm(&x, scale, shift);
        output.graph_full_precision(&normal, g)
    }
}

/// First and last `Local`, then the blocks, then the output.
fn table_sizes(blocks: i64, dim: i64) -> Vec<i64> {
    let mut sizes = [2, 1].repeat(2 + 2 * blocks as usize);
    sizes.push(2);
    sizes.iter().map(|width| width * dim).collect()
}

fn pair(tables: &[Tensor], at: usize) -> LocalTables<'_> {
    tables[at..].first_chunk().expect("scale and shift, gate")
}

impl Local {
    fn new(path: Path, dim: i64, kernel: i64) -> Self {
        let depthwise = Depthwise::new(&path / "depthwise", dim, kernel);
        Local { depthwise, feed_forward: FeedForward::new(&path / "feed_forward", dim) }
    }

    fn forward(&self, x: &Tensor, [scale_shift, gate]: LocalTables, track: &Track) -> Tensor {
        let [normal, x] = modulated_norm(x, scale_shift, track);
        let near = self.depthwise.forward(&normal, track);
        gated_add(&x, &self.feed_forward.forward(&near), gate, track)
    }

    /// `tables`: scale, shift, gate.
    fn graph(&self, x: &Value, tables: &[Value], g: &mut GraphWriter) -> Value {
        let Local { depthwise, feed_forward } = self;
        let normal = g.layer_norm(x, &tables[0], &tables[1]);
        let near = depthwise.graph(&normal, g);
        let wide = feed_forward.graph(&near, g);
        let gated = g.mul(&wide, &tables[2]);
        g.add(x, &gated)
    }
}

impl Block {
    fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.decoder_dim;
        // Kernel 5: a gap of four frames is two pairs, and no kernel may reach across.
        Block {
            attention: Attention::new(&path / "attention", dim, config.decoder_heads),
            local: Local::new(path, dim, 5),
        }
    }

    fn forward(&self, x: &Tensor, tables: &[Tensor], rates: &Rates) -> Tensor {
        let ([scale_shift, gate], track) = (pair(tables, 0), &rates.half);
        let [normal, x] = modulated_norm(x, scale_shift, track);
        let mixed = self.attention.forward(&normal, &rates.rotary, track);
        self.local.forward(&gated_add(&x, &mixed, gate, track), pair(tables, 2), track)
    }

    /// `tables`: scale, shift and gate of the attention, and of what follows it.
    fn graph(&self, x: &Value, tables: &[Value], rotary: &GraphRotary, g: &mut GraphWriter) -> Value {
        let Block { attention, local } = self;
        let normal = g.layer_norm(x, &tables[0], &tables[1]);
        let mixed = attention.graph(&normal, rotary, g);
        let gated = g.mul(&mixed, &tables[2]);
        let x = g.add(x, &gated);
        local.graph(&x, &tables[3..], g)
    }
}

type Stage<'a> = Box<dyn Fn(&Tensor) -> Tensor + 'a>;

/// Runs without a graph: what went into each stage, and what came out of the last.
fn run(stages: &[Stage], x: &Tensor) -> (Vec<Tensor>, Tensor) {
    let mut inputs = vec![x.detach()];
    for stage in stages {
        let next = tch::no_grad(|| stage(inputs.last().expect("starts with one")));
        inputs.push(next);
    }
    let output = inputs.pop().expect("one more than stages");
    (inputs, output)
}

/// Computes each stage again and takes the gradient back through it.
fn go_back(stages: &[Stage], inputs: &[Tensor], gradient: &Tensor) -> Tensor {
    stages.iter().zip(inputs).rev().fold(gradient.shallow_clone(), |gradient, (stage, input)| {
        let input = leaf(input);
        along(&stage(&input), &gradient).backward();
        input.grad()
    })
}

/// The same values, cut off from what made them, and collecting a gradient.
fn leaf(tensor: &Tensor) -> Tensor {
    tensor.detach().set_requires_grad(true)
}

/// `[n]` in 0..1 to `[n, TIME_CHANNELS]`. The factor 1000 spreads the unit interval over the wavelengths.
fn sinusoidal(time: &Tensor) -> Tensor {
    let half = TIME_CHANNELS / 2;
    let exponent = Tensor::arange(half, (Kind::Float, time.device())) * (-(10_000f64.ln()) / (half - 1) as f64);
    let angle = time.unsqueeze(1) * 1000.0 * exponent.exp().unsqueeze(0);
    Tensor::cat(&[angle.sin(), angle.cos()], 1)
}
