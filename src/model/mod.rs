//! The voice: text to mel frames. Matcha-TTS family, on packed batches of fixed shape.
//!
//! Training aligns text and frames by search (`align`), pulls each token's mean towards its frames, teaches the
//! duration predictor what the search found, and the decoder the flow from noise to speech. A part of each utterance's
//! frames is given clean and the rest generated (`context`): so a reference in front of a text says how it shall sound.

mod align;
mod branches;
mod context;
pub mod conv;
mod decoder;
mod draw;
mod encoder;
pub mod flow;
pub mod graph;
pub mod layers;
#[cfg(test)]
mod tests;
mod track;

use crate::feed::{Batch, Packed};
use align::Aligner;
pub use branches::{Branch, Branches};
use context::ContextMasks;
use decoder::{Conditioning, Context, Decoder, Rates};
use draw::Draw;
use encoder::{DurationPredictor, Encoded, Encoder, duration_loss};
use graph::GraphWriter;
use host::config;
use host::onnx::{Attribute, Kind as Number, Port, Value};
use tch::nn::Path;
use tch::{Kind, Tensor};
use torchx::fused::{self, Spans};
use torchx::gradients;
use torchx::stream::{Beside, beside};
use track::{Track, half};

/// What streams are asked for is there.
pub(crate) const STREAMS: &str = "streams of this device";

pub struct Voice {
    encoder: Encoder,
    duration: DurationPredictor,
    decoder: Decoder,
    aligner: Aligner,
    draws: i64,
    condition_dropout: f64,
    /// Largest share of context frames; 0 where nothing is cloned.
    context_share: f64,
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
    /// Distance from the velocity, over generated frames.
    pub flow: Tensor,
}

impl Losses {
    pub const NAMES: [&'static str; 3] = ["prior", "duration", "flow"];
    /// Place of the flow's loss among them.
    pub const FLOW: usize = 2;

    pub fn parts(&self) -> [&Tensor; 3] {
        [&self.prior, &self.duration, &self.flow]
    }

    fn detach(&self) -> Losses {
        let [prior, duration, flow] = self.parts().map(Tensor::detach);
        Losses { prior, duration, flow }
    }
}

/// How speech is drawn from the flow.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Steps along the flow.
    pub steps: usize,
    /// Scale of the starting noise: lower is flatter and safer.
    pub temperature: f64,
    /// How far to go from what any speech would be towards what text and speaker ask for; 1 is as trained.
    pub guidance: f64,
    /// How much further to go from what any speaker would say towards how this one does; 0 is as trained.
    pub speaker_guidance: f64,
}

/// Branches of whoever speaks, in a graph: of each where its reference starts and ends, whether it has content, its weight.
pub struct GraphBranches {
    /// 0-d.
    pub count: Value,
    /// `[frames, n_mels]`, normalised, of all that may be in front.
    pub reference: Value,
    /// `[branches]` each, or longer: `i64`.
    pub starts: Value,
    pub ends: Value,
    /// f32: 1 or 0.
    pub content: Value,
    pub weights: Value,
}

/// What text and alignment give: content for the decoder, and the losses that come before it.
struct Aligned {
    /// `[frames, decoder_dim]`
    content: Tensor,
    prior: Tensor,
    duration: Tensor,
}

impl Aligned {
    fn losses(self, flow: Tensor) -> Losses {
        Losses { prior: self.prior, duration: self.duration, flow }
    }
}

impl Voice {
    /// `languages`: how many the tokenizer tells apart.
    pub fn new(
        path: &Path,
        config: &config::Model,
        vocab_size: usize,
        languages: usize,
        kind: Kind,
    ) -> Result<Self, torchx::Error> {
        Ok(Voice {
            aligner: Aligner::new(path.device())?,
            encoder: Encoder::new(path / "encoder", config, vocab_size as i64, languages as i64),
            duration: DurationPredictor::new(path / "duration", config),
            decoder: Decoder::new(path / "decoder", config),
            draws: config.draws_per_item,
            condition_dropout: config.condition_dropout,
            context_share: config.context_share,
            kind,
            recompute: config.enable_gradient_checkpointing,
        })
    }

    /// The losses of a batch, for validation.
    pub fn losses(&self, batch: &Batch) -> Losses {
        self.losses_at(batch, &Draw::new(batch, 1, self.context_share, 0.0), false)
    }

    fn losses_at(&self, batch: &Batch, draw: &Draw, train: bool) -> Losses {
        self.with_aligned(batch, draw, train, |aligned, tables, rates| {
            let guess = self.decoder.velocity(&draw.noisy, &draw.conditioning(&aligned.content), tables, rates);
            aligned.losses(draw.loss(&guess))
        })
    }

    /// Adds `weight` (0-d) times the losses' gradients to the parameters'. The losses come back without a graph.
    pub fn backward(&self, batch: &Batch, weight: &Tensor) -> Losses {
        let draw = || Draw::new(batch, self.draws, self.context_share, self.condition_dropout);
        self.backward_at(batch, &early(batch, draw).ahead(), weight)
    }

    fn backward_at(&self, batch: &Batch, draw: &Draw, weight: &Tensor) -> Losses {
        if !self.recompute {
            let losses = self.losses_at(batch, draw, true);
            gradients::backward_all(&losses.parts(), weight).expect(layers::FIXED);
            return losses.detach();
        }
        self.with_aligned(batch, draw, true, |aligned, tables, rates| {
            let loss = |guess: &Tensor| draw.loss(guess) * weight;
            let conditioning = draw.conditioning(&aligned.content);
            let (flow, by_content) = self.decoder.backward(&draw.noisy, &conditioning, tables, rates, loss);
            let rest = (&aligned.prior + &aligned.duration) * weight + along(&aligned.content, &by_content);
            rest.backward();
            aligned.losses(flow / weight).detach()
        })
    }

    /// `then` with all that the decoder needs: content, and the modulation and rates that are made beside it.
    fn with_aligned<T>(
        &self,
        batch: &Batch,
        draw: &Draw,
        train: bool,
        then: impl FnOnce(Aligned, &[Tensor], &Rates) -> T,
    ) -> T {
        let halved = early(batch, || half(&draw.frames)).ahead();
        let modulation =
            || (self.decoder.rates(&draw.frames, &halved, self.kind), self.decoder.tables(&draw.times, self.kind));
        let ready = early(batch, modulation);
        let aligned = self.aligned(batch, train);
        let (rates, tables) = ready.join().expect(STREAMS);
        then(aligned, &tables, &rates)
    }

    /// Content along the frames, and what is learned from text and alignment alone.
    fn aligned(&self, batch: &Batch, train: bool) -> Aligned {
        let (text, frames) = (&batch.text, &batch.frames);
        let track = self.text_track(text);
        let encoded = self.encoder.forward(&batch.tokens, &batch.languages, &track, train);
        // Durations are wanted at the end alone: their small kernels run beside the search.
        let predicted = || self.duration.forward(&encoded.hidden, &track, train);
        let predicted = beside(batch.mel.device(), "durations", predicted).expect(STREAMS);
        let token_of_frame = self.token_of_frame(&encoded, batch);
        let along = Spans::new(&frames.owner, &frames.starts, &frames.lens).expect("three lists");
        let laid =
            fused::lay(&encoded.table, &token_of_frame, self.n_mels(), &track.spans, &along).expect(layers::FIXED);
        let predicted = predicted.join().expect(STREAMS);
        Aligned {
            prior: fused::square_loss(&laid.mean, &batch.mel, &frames.mask, None, 0.5).expect(layers::FIXED),
            duration: duration_loss(&predicted, &laid.lasted, &text.mask),
            content: laid.content,
        }
    }

    fn text_track<'a>(&self, text: &'a Packed) -> Track<'a> {
        Track::new(text, self.kind)
    }

    /// As the batch holds it, or as the search finds it.
    fn token_of_frame(&self, encoded: &Encoded, batch: &Batch) -> Tensor {
        match &batch.token_of_frame {
            Some(known) => known.shallow_clone(),
            None => self.aligner.search(&encoded.table, &batch.mel, &batch.text, &batch.frames),
        }
    }

    /// Whether it speaks as a reference does.
    pub fn clones(&self) -> bool {
        self.context_share > 0.0
    }

    /// Makes the decoder's products in eight bits from now on, for speech on a CPU. Text stays exact: it decides how long
    /// everything lasts.
    pub fn round(&self) {
        self.decoder.round();
    }

    /// Frames that each token should last (`[text]`, f32), and content for the decoder (`[text, decoder_dim]`).
    pub fn plan(&self, tokens: &Tensor, languages: &Tensor, text: &Packed) -> (Tensor, Tensor) {
        let track = self.text_track(text);
        let encoded = self.encoder.forward(tokens, languages, &track, false);
        let frames = self.duration.forward(&encoded.hidden, &track, false).squeeze_dim(1).exp();
        (frames, encoded.split(&encoded.table).1)
    }

    /// Mel frames (normalised) from content along the frames (`[frames, decoder_dim]`), following the flow from `noise`
    /// (`[frames, n_mels]`, f32) in so many steps.
    pub fn decode(&self, content: &Tensor, noise: &Tensor, steps: usize, branches: &Branches) -> Tensor {
        let rows = &branches.rows;
        let halved = half(rows);
        let rates = self.decoder.rates(rows, &halved, self.kind);
        let content = content.index_select(0, &branches.frame_of_row);
        let velocity = |x: &Tensor, time: f64| {
            let times = Tensor::full([rows.capacity()], time, (Kind::Float, x.device()));
            let conditioning = Conditioning {
                content: &content,
                content_mask: &branches.content_mask,
                context: branches.context.as_ref().map(|(mel, mask)| Context { mel, mask }),
            };
            let tables = self.decoder.tables(&times, self.kind);
            let rows = x.index_select(0, &branches.frame_of_row);
            branches.sum(&self.decoder.velocity(&rows, &conditioning, &tables, &rates))
        };
        flow::sample(noise.shallow_clone(), steps, velocity)
    }

    /// `plan` in a graph, of one text: tokens `[text]` of a language, by its number.
    pub fn graph_plan(&self, tokens: &Value, language: i64, g: &mut GraphWriter) -> (Value, Value) {
        let Voice {
            encoder,
            duration,
            decoder: _,
            aligner: _,
            draws: _,
            condition_dropout: _,
            context_share: _,
            kind: _,
            recompute: _,
        } = self;
        let (hidden, content) = encoder.graph(tokens, language, g);
        let frames = duration.graph(&hidden, g);
        let frames = g.squeeze(&frames, 1);
        (g.op("Exp", &[&frames], vec![]), content)
    }

    /// `decode` in a graph: a loop over steps, and in each over branches, so that its size depends on neither.
    pub fn graph_decode(
        &self,
        content: &Value,
        noise: &Value,
        steps: usize,
        branches: &GraphBranches,
        g: &mut GraphWriter,
    ) -> Value {
        let GraphBranches { count, reference, starts, ends, content: with_content, weights } = branches;
        let schedule = flow::schedule(steps);
        let times: Vec<f64> = schedule.iter().map(|step| step.time).collect();
        let tables = self.decoder.graph_tables(&times, g);
        let mut by_step = |name: &str, value: fn(&flow::Step) -> f64| {
            let values: Vec<f32> = schedule.iter().map(|step| value(step) as f32).collect();
            g.values(name, &Tensor::from_slice(&values))
        };
        let (widths, leans) = (by_step("flow.widths", |step| step.width), by_step("flow.leans", |step| step.lean));
        let reference = self.decoder.graph_context(reference, g);
        let rotary = {
            // Positions of the longest branch; at half the rate, and one more for an odd frame.
            let (frames, given) = (g.len(content, 0), g.op("Sub", &[ends, starts], vec![]));
            let longest = g.op("ReduceMax", &[&given], vec![("keepdims", Attribute::Int(1))]);
            let (rows, one) = (g.add(&frames, &longest), g.ints(&[1]));
            self.decoder.graph_rotary(&g.add(&rows, &one), g)
        };
        let (none, one) = (g.float(0.0), g.float(1.0));
        let still = g.mul(noise, &none);
        let steps = g.int(steps as i64);
        let trips = g.mul(count, &steps);

        let [turn, more, x, sum, before] = ["turn", "more", "x", "sum", "before"].map(|name| g.placeholder(name));
        let mel = || vec!["frames".into(), self.n_mels().into()];
        let inputs = vec![
            Port::new(&turn, Number::I64, []),
            Port::new(&more, Number::Bool, []),
            Port::new(&x, Number::F32, mel()),
            Port::new(&sum, Number::F32, mel()),
            Port::new(&before, Number::F32, mel()),
        ];
        g.begin_body();
        let step = g.op("Div", &[&turn, count], vec![]);
        let branch = g.op("Mod", &[&turn, count], vec![]);
        let table = g.gather(&tables, &step);
        let [weight, share] = [weights, with_content].map(|values| g.gather(values, &branch));
        let content = g.mul(content, &share);
        let reference = reference.as_ref().map(|all| {
            let [start, end] = [starts, ends].map(|places| {
                let place = g.gather(places, &branch);
                g.unsqueeze(&place, 0)
            });
            g.slice(all, &start, &end, 0)
        });
        let velocity = self.decoder.graph(&x, &content, reference.as_ref(), &table, &rotary, g);
        let weighted = g.mul(&velocity, &weight);
        let sum = g.add(&sum, &weighted);
        // The last branch of a step moves the frames.
        let one_more = g.int(1);
        let behind = g.add(&branch, &one_more);
        let last = g.op("Equal", &[&behind, count], vec![]);
        let last = g.cast(&last, Number::F32);
        let [width, lean] = [&widths, &leans].map(|values| g.gather(values, &step));
        let change = g.sub(&sum, &before);
        let leant = g.mul(&change, &lean);
        let slope = g.add(&sum, &leant);
        let (far, kept) = (g.mul(&last, &width), g.sub(&one, &last));
        let moved = g.mul(&slope, &far);
        let x = g.add(&x, &moved);
        let turned = g.mul(&change, &last);
        let before = g.add(&before, &turned);
        let sum = g.mul(&sum, &kept);
        let frames = [x, sum, before].map(|value| (value, Number::F32, mel()));
        let outputs = [vec![(more, Number::Bool, vec![])], frames.into()].concat();
        let body = g.end_body("step", inputs, outputs);
        let attributes = vec![("body", Attribute::Body(body))];
        g.ops("Loop", &[&trips, &Value::absent(), noise, &still, &still], 3, attributes).remove(0)
    }

    pub fn n_mels(&self) -> i64 {
        self.decoder.n_mels()
    }

    /// The batch's own utterances as the voice speaks them, along the durations that the search finds: `[frames, n_mels]`,
    /// normalised. Where it clones, a part of each is context and comes back as it was recorded.
    pub fn imitate(&self, batch: &Batch, how: &Sampling) -> Tensor {
        let content = self.aligned(batch, false).content;
        let masks = ContextMasks::draw(&batch.frames, self.context_share, 0.0);
        let noise = batch.mel.randn_like() * how.temperature;
        let context = masks.context.as_ref().map(|mask| (&batch.mel, mask));
        let branches = Branches::along(&batch.frames, &masks.content, context, how.guidance);
        let spoken = self.decode(&content, &noise, how.steps, &branches);
        match &masks.context {
            Some(context) => spoken * (1.0 - context) + &batch.mel * context,
            None => spoken,
        }
    }

    /// The packed token index of every frame (`[frames]`, i32), as the search finds it.
    pub fn align(&self, batch: &Batch) -> Tensor {
        self.search(&batch.tokens, &batch.languages, &batch.text, &batch.mel, &batch.frames)
    }

    /// Frames that each token lasts in a recording (`mel`, normalised) of the text, as the search finds it: `[text, 1]`, f32.
    pub fn recorded_durations(
        &self,
        tokens: &Tensor,
        languages: &Tensor,
        text: &Packed,
        mel: &Tensor,
        frames: &Packed,
    ) -> Tensor {
        align::durations(&self.search(tokens, languages, text, mel, frames), text, frames)
    }

    fn search(&self, tokens: &Tensor, languages: &Tensor, text: &Packed, mel: &Tensor, frames: &Packed) -> Tensor {
        let encoded = self.encoder.forward(tokens, languages, &self.text_track(text), false);
        self.aligner.search(&encoded.table, mel, text, frames)
    }

    /// How a speaker sounds to the decoder: `[decoder_dim]`, f32, of normalised frames. Only where the voice clones.
    pub fn describe(&self, mel: &Tensor, frames: &Packed) -> Tensor {
        self.decoder.describe(mel, frames, self.kind)
    }
}

/// What the decoder needs and is known before the text is: small kernels, one after the other, which run beside the encoder's.
/// The last of them is to be joined.
fn early<T>(batch: &Batch, work: impl FnOnce() -> T) -> Beside<T> {
    beside(batch.mel.device(), "before the decoder", work).expect(STREAMS)
}

/// A number whose gradient by `output` is `gradient`.
pub(crate) fn along(output: &Tensor, gradient: &Tensor) -> Tensor {
    (output * gradient).sum(Kind::Float)
}
