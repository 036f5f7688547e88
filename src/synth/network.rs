//! The network as speech uses it: clauses of many utterances in one forward pass, each as it would come out alone.
//!
//! Two stages, because the host must know how long speech lasts before it can lay frames out: text to durations and
//! content, then frames to sound. On a GPU both are padded to a ladder of sizes and replayed as captured graphs.

use super::Options;
use super::backend::VocoderBackend;
use super::stages::{Key, Stages};
use crate::feed::{MelStats, Packed};
use crate::model::Voice;
use anyhow::Result;
use host::loader::{AxisTables, GAP, Span};
use host::rng::Rng;
use std::cell::RefCell;
use std::ops::Range;
use tch::{Device, Kind, Tensor};

/// A token that would last longer than this is a fault of the model, not speech: about 4.6 s.
const MOST_FRAMES_PER_TOKEN: f64 = 400.0;
/// So is a clause: about 48 s. It bounds the memory of a pass.
const MOST_FRAMES: f64 = 4096.0;
/// More than this in one pass gains nothing, and costs memory: frames of all clauses together, and clauses.
const PASS_FRAMES: usize = 24_576;
const PASS_CLAUSES: usize = 128;
/// Speech has some six frames a token; good enough to warm up with.
const USUAL_FRAMES_PER_TOKEN: f64 = 6.0;

/// What is spoken in one piece.
pub struct Clause {
    pub tokens: Vec<i32>,
    /// A number of the tokenizer's.
    pub language: usize,
    /// `[1, voice_latents, voice_dim]`; where the voice clones, always there.
    pub latents: Option<Tensor>,
    pub options: Options,
    /// Of its own noise: what else is in the pass changes nothing.
    pub seed: [u64; 2],
}

pub struct Network {
    pub voice: Voice,
    pub(super) vocoder_backend: VocoderBackend,
    stats: MelStats,
    hop_samples: usize,
    device: Device,
    pub(super) sizes: Sizes,
    stages: RefCell<Stages>,
    /// Frames that every token lasts, where the voice is not asked: an untrained one has no idea.
    pub frames_per_token: Option<f64>,
}

impl Network {
    pub fn new(
        voice: Voice,
        vocoder_backend: VocoderBackend,
        stats: MelStats,
        hop_samples: usize,
        device: Device,
    ) -> Self {
        let sizes = if device.is_cuda() { Sizes::Ladder } else { Sizes::Close };
        let stages = RefCell::new(Stages::new(device));
        Network { voice, vocoder_backend, stats, hop_samples, device, sizes, stages, frames_per_token: None }
    }

    /// Samples of each clause.
    pub fn speak(&self, clauses: &[&Clause]) -> Result<Vec<Vec<f32>>> {
        // `tch` panics where LibTorch throws.
        crate::catch(|| tch::no_grad(|| self.speak_or_panic(clauses)))?
    }

    fn speak_or_panic(&self, clauses: &[&Clause]) -> Result<Vec<Vec<f32>>> {
        let mut spoken = Vec::with_capacity(clauses.len());
        for some in clauses.chunks(PASS_CLAUSES) {
            let (lasting, content) = self.plan(some)?;
            let mut waves: Vec<Vec<f32>> = some.iter().map(|_| Vec::new()).collect();
            for pass in passes(some, &lasting) {
                for (index, wave) in pass.iter().zip(self.sound(&pass, some, &lasting, &content)?) {
                    waves[*index] = wave;
                }
            }
            spoken.extend(waves);
        }
        Ok(spoken)
    }

    /// Captures the sizes that most speech has, so that the first request need not wait for it.
    pub fn warm_up(&mut self, latents: Option<Tensor>, options: &Options) -> Result<()> {
        let given = self.frames_per_token.replace(USUAL_FRAMES_PER_TOKEN);
        // Each on a rung of its own, from one and a half seconds to seventeen.
        for tokens in [20, 30, 40, 60, 80, 120, 168, 240] {
            let tokens = vec![1; tokens];
            let latents = latents.as_ref().map(Tensor::shallow_clone);
            let clause = Clause { tokens, language: 0, latents, options: *options, seed: [0, 0] };
            // Once to set libraries up, once to capture.
            for _ in 0..2 {
                self.speak(&[&clause])?;
            }
        }
        self.frames_per_token = given;
        Ok(())
    }

    pub fn vocoder_parameters(&self) -> usize {
        self.vocoder_backend.parameters()
    }

    /// Why graphs are not used, where they could not be captured.
    pub fn note(&self) -> Option<String> {
        self.stages.borrow().failure()
    }

    /// Frames that each token lasts, and content of all tokens (`[text, decoder_dim]`).
    fn plan(&self, clauses: &[&Clause]) -> Result<(Vec<Lasting>, Tensor)> {
        let lens: Vec<usize> = clauses.iter().map(|clause| clause.tokens.len()).collect();
        let axis = Room::new(&lens, self.sizes);
        let mut ints = axis.tables();
        let tokens = extend(&mut ints, axis.total);
        let languages = extend(&mut ints, axis.capacity);
        for (index, (clause, span)) in clauses.iter().zip(&axis.spans).enumerate() {
            ints[tokens.start + span.start..][..span.len].copy_from_slice(&clause.tokens);
            ints[languages.start + index] = clause.language as i32;
        }
        let mut inputs = vec![self.moved(&ints)];
        inputs.extend(self.latents(clauses.iter().copied(), axis.capacity));
        let work = |inputs: &[Tensor]| {
            let text = axis.packed(&inputs[0]);
            let (frames, content) =
                self.voice.plan(&part(&inputs[0], &tokens), &part(&inputs[0], &languages), inputs.get(1), &text);
            vec![frames, content]
        };
        let outputs = self.stages.borrow_mut().run(axis.key(None), inputs, work)?;
        let expected: Vec<f32> = Vec::try_from(outputs[0].to_device(Device::Cpu).contiguous())?;
        let lasting = clauses.iter().zip(&axis.spans).map(|(clause, span)| {
            let expected = expected[span.range()].iter().map(|frames| f64::from(*frames));
            let expected = expected.map(|frames| self.frames_per_token.unwrap_or(frames) / clause.options.speed);
            Lasting { first_token: span.start, frames: whole_frames(&expected.collect::<Vec<_>>()) }
        });
        Ok((lasting.collect(), outputs[1].shallow_clone()))
    }

    /// Sound of the clauses of one pass.
    fn sound(
        &self,
        pass: &[usize],
        clauses: &[&Clause],
        lasting: &[Lasting],
        content: &Tensor,
    ) -> Result<Vec<Vec<f32>>> {
        let lens: Vec<usize> = pass.iter().map(|&index| lasting[index].total()).collect();
        let axis = Room::new(&lens, self.sizes);
        let mut token_of_frame = vec![0i32; axis.total];
        let mut guidance = vec![1f32; axis.capacity];
        let n_mels = self.voice.n_mels() as usize;
        let mut noise = vec![0f32; axis.total * n_mels];
        for (place, (&index, span)) in pass.iter().zip(&axis.spans).enumerate() {
            let clause = clauses[index];
            lasting[index].write(&mut token_of_frame[span.range()]);
            guidance[place] = clause.options.sampling.guidance as f32;
            let rows = &mut noise[span.start * n_mels..span.end() * n_mels];
            normal(&clause.seed, clause.options.sampling.temperature as f32, rows);
        }
        let along = content.index_select(0, &self.moved(&token_of_frame));
        let noise = Tensor::from_slice(&noise).view([-1, n_mels as i64]).to_device(self.device);
        let mut inputs = vec![self.moved(&axis.tables()), along, noise, self.floats(&guidance)];
        inputs.extend(self.latents(pass.iter().map(|&index| clauses[index]), axis.capacity));
        let how = Manner::of(clauses[pass[0]]);
        let work = |inputs: &[Tensor]| {
            let frames = axis.packed(&inputs[0]);
            let guidance = how.guided.then_some(&inputs[3]);
            let mel = self.voice.decode(&inputs[1], inputs.get(4), &frames, &inputs[2], how.steps, guidance);
            vec![self.vocoder_backend.packed(&self.stats.restore(&mel), &frames.mask)]
        };
        let outputs = self.stages.borrow_mut().run(axis.key(Some((how.steps, how.guided))), inputs, work)?;
        Ok(self.vocoder_backend.cut(&outputs[0], &axis.spans, self.hop_samples))
    }

    /// Samples of one utterance's log-mel frames, `[frames, n_mels]`.
    pub fn vocode(&self, log_mel: &Tensor) -> Vec<f32> {
        let frames = log_mel.size()[0];
        let mask = Tensor::ones([frames, 1], (Kind::Float, self.device));
        let whole = Span { start: 0, len: frames as usize };
        self.vocoder_backend.cut(&self.vocoder_backend.packed(log_mel, &mask), &[whole], self.hop_samples).remove(0)
    }

    fn moved(&self, ints: &[i32]) -> Tensor {
        Tensor::from_slice(ints).to_device(self.device)
    }

    fn floats(&self, values: &[f32]) -> Tensor {
        Tensor::from_slice(values).to_device(self.device)
    }

    /// `[capacity, voice_latents, voice_dim]`, zeros where there is no clause.
    fn latents<'a>(&self, clauses: impl Iterator<Item = &'a Clause>, capacity: usize) -> Option<Tensor> {
        let each: Option<Vec<Tensor>> =
            clauses.map(|clause| clause.latents.as_ref().map(Tensor::shallow_clone)).collect();
        let each = each.filter(|_| self.voice.clones())?;
        let missing = capacity as i64 - each.len() as i64;
        Some(Tensor::cat(&each, 0).constant_pad_nd([0, 0, 0, 0, 0, missing]))
    }
}

/// Keeps the weights of products (`torchx::with_products`) as what they are used as, so that no pass casts them again. The
/// others stay f32, as kernels and norms want them.
pub fn narrow_weights(products: Vec<Tensor>, kind: Kind) {
    for mut weight in products.into_iter().filter(|_| kind != Kind::Float) {
        weight.set_data(&weight.to_kind(kind));
    }
}

/// Normalised mel frames `[frames, n_mels]` of one utterance. `language` is a number of the tokenizer's.
pub fn speak_tokens(
    voice: &Voice,
    tokens: &[i32],
    language: usize,
    latents: Option<&Tensor>,
    options: &Options,
    device: Device,
) -> Tensor {
    let moved = |ints: &[i32]| Tensor::from_slice(ints).to_device(device);
    let text = Room::new(&[tokens.len()], Sizes::Close);
    let mut ids = tokens.to_vec();
    ids.resize(text.total, 0);
    let (expected, content) =
        voice.plan(&moved(&ids), &moved(&[language as i32]), latents, &text.packed(&moved(&text.tables())));
    let expected: Vec<f64> = Vec::try_from(expected / options.speed).expect("one number a token");
    let lasting = Lasting { first_token: 0, frames: whole_frames(&expected[..tokens.len()]) };
    let frames = Room::new(&[lasting.total()], Sizes::Close);
    let mut token_of_frame = vec![0; frames.total];
    lasting.write(&mut token_of_frame[..lasting.total()]);
    let mut noise = vec![0f32; frames.total * voice.n_mels() as usize];
    normal(&[options.seed, 0], options.sampling.temperature as f32, &mut noise);
    let noise = Tensor::from_slice(&noise).view([-1, voice.n_mels()]).to_device(device);
    let content = content.index_select(0, &moved(&token_of_frame));
    let axis = frames.packed(&moved(&frames.tables()));
    voice.decode(&content, latents, &axis, &noise, options.sampling.steps, None).narrow(0, 0, lasting.total() as i64)
}

/// What one pass has in common.
#[derive(Clone, Copy, PartialEq)]
struct Manner {
    steps: usize,
    guided: bool,
}

impl Manner {
    fn of(clause: &Clause) -> Self {
        let sampling = clause.options.sampling;
        Manner { steps: sampling.steps, guided: sampling.guidance != 1.0 }
    }
}

/// Clauses (by index) that go through the decoder together: of one kind, and no more than fit.
fn passes(clauses: &[&Clause], lasting: &[Lasting]) -> Vec<Vec<usize>> {
    let mut passes: Vec<(Manner, usize, Vec<usize>)> = Vec::new();
    for (index, clause) in clauses.iter().enumerate() {
        let (kind, frames) = (Manner::of(clause), lasting[index].total() + GAP);
        match passes.iter_mut().find(|(other, used, _)| *other == kind && used + frames <= PASS_FRAMES) {
            Some((_, used, pass)) => {
                *used += frames;
                pass.push(index);
            }
            None => passes.push((kind, frames, vec![index])),
        }
    }
    passes.into_iter().map(|(_, _, pass)| pass).collect()
}

/// How long each token of a clause lasts.
struct Lasting {
    /// Place of its first token among those of the pass.
    first_token: usize,
    frames: Vec<usize>,
}

impl Lasting {
    fn total(&self) -> usize {
        self.frames.iter().sum()
    }

    /// The token of every frame.
    fn write(&self, token_of_frame: &mut [i32]) {
        let mut at = 0;
        for (token, &frames) in self.frames.iter().enumerate() {
            token_of_frame[at..at + frames].fill((self.first_token + token) as i32);
            at += frames;
        }
    }
}

/// Whole numbers of frames that keep step with the expected ones: what rounding takes from a token, the next one gets.
fn whole_frames(expected: &[f64]) -> Vec<usize> {
    let bounded = |frames: &f64| frames.min(MOST_FRAMES_PER_TOKEN);
    let shrink = (MOST_FRAMES / expected.iter().map(bounded).sum::<f64>()).min(1.0);
    let mut owed = 0.0;
    let mut whole = |frames: &f64| {
        let due = bounded(frames) * shrink + owed;
        let given = due.round().max(1.0);
        owed = due - given;
        given as usize
    };
    expected.iter().map(&mut whole).collect()
}

/// Fills `out` with a normal distribution of this deviation (Box & Muller 1958). Not LibTorch's: what is drawn must not
/// depend on the device, nor on what else is spoken.
fn normal(seed: &[u64], deviation: f32, out: &mut [f32]) {
    let mut rng = Rng::new(seed);
    for pair in out.chunks_mut(2) {
        let bits = rng.next();
        // 24 bits fill a f32; never 0, whose logarithm is not finite.
        let radius = ((bits >> 40) + 1) as f32 / (1 << 24) as f32;
        let angle = (bits as u32 >> 8) as f32 / (1 << 24) as f32 * std::f32::consts::TAU;
        let (sin, cos) = angle.sin_cos();
        let far = deviation * (-2.0 * radius.ln()).sqrt();
        pair[0] = far * cos;
        if let Some(second) = pair.get_mut(1) {
            *second = far * sin;
        }
    }
}

/// Lengths on a CPU are multiples of this: a third of a second.
const CLOSE: usize = 32;

/// How much room an axis gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// Little more than is needed: on a CPU every row costs, but so does every new length, for which LibTorch makes and
    /// keeps kernels of its own.
    Close,
    /// The next rung, so that few graphs serve all lengths.
    Ladder,
}

/// One axis of a pass.
struct Room {
    spans: Vec<Span>,
    total: usize,
    capacity: usize,
    longest: usize,
    tables: AxisTables,
}

impl Room {
    fn new(lens: &[usize], sizes: Sizes) -> Self {
        let mut at = 0;
        // Even, because the decoder pairs frames.
        let place = |&len: &usize| {
            let span = Span { start: at, len };
            at = (at + len + GAP).next_multiple_of(2);
            span
        };
        let spans: Vec<Span> = lens.iter().map(place).collect();
        let longest = lens.iter().copied().max().unwrap_or(0);
        let (total, capacity, longest) = match sizes {
            Sizes::Close => {
                let total = at.next_multiple_of(CLOSE);
                (total, lens.len(), longest.next_multiple_of(CLOSE).min(total - GAP))
            }
            Sizes::Ladder if lens.len() == 1 => (rung(at), 1, rung(at) - GAP),
            Sizes::Ladder => (rung(at), lens.len().next_power_of_two(), rung(longest)),
        };
        Room { spans, total, capacity, longest, tables: AxisTables::new(0, total, capacity, longest) }
    }

    fn tables(&self) -> Vec<i32> {
        let mut ints = vec![0; self.tables.lens.end];
        self.tables.fill(&mut ints, &self.spans);
        ints
    }

    fn packed(&self, ints: &Tensor) -> Packed {
        Packed::of_tables(ints, &self.tables, self.tables.longest_segment)
    }

    /// `decoded`: steps, and whether they are guided; none for text.
    fn key(&self, decoded: Option<(usize, bool)>) -> Key {
        Key { total: self.total, capacity: self.capacity, longest: self.longest, decoded }
    }
}

/// 64, 96, 128, 192, 256, 384 …: never more than half as much again.
fn rung(len: usize) -> usize {
    let above = len.next_power_of_two().max(64);
    if len <= above / 4 * 3 && above > 64 { above / 4 * 3 } else { above }
}

/// Room behind the last number.
fn extend(ints: &mut Vec<i32>, len: usize) -> Range<usize> {
    let start = ints.len();
    ints.resize(start + len, 0);
    start..start + len
}

fn part(ints: &Tensor, range: &Range<usize>) -> Tensor {
    ints.narrow(0, range.start as i64, range.len() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_loses_no_time() {
        assert_eq!(whole_frames(&[2.4, 2.4, 2.4, 2.4, 2.4]), [2, 3, 2, 3, 2]);
        assert_eq!(whole_frames(&[0.2, 0.2, 5.6]), [1, 1, 4]);
        let expected: Vec<f64> = (0..1000).map(|i| 1.0 + f64::from(i % 7) * 0.37).collect();
        let total: usize = whole_frames(&expected).iter().sum();
        assert!((total as f64 - expected.iter().sum::<f64>()).abs() < 1.0);
    }

    #[test]
    fn a_faulty_duration_is_bounded() {
        assert_eq!(whole_frames(&[f64::INFINITY, f64::NAN, 1.0]), [400, 400, 1]);
        assert!(whole_frames(&[300.0; 500]).iter().sum::<usize>() <= MOST_FRAMES as usize + 1);
    }

    #[test]
    fn rungs_are_close_and_even() {
        assert_eq!([1, 64, 65, 96, 97, 128, 129, 193].map(rung), [64, 64, 96, 96, 128, 128, 192, 256]);
        assert!((64..9000).all(|len| rung(len) >= len && rung(len) * 2 <= len * 3 && rung(len).is_multiple_of(2)));
    }

    #[test]
    fn noise_is_normal_and_its_own() {
        let mut noise = vec![0f32; 200_001];
        normal(&[1, 2], 2.0, &mut noise);
        let mean = |power: i32| noise.iter().map(|x| (f64::from(*x) / 2.0).powi(power)).sum::<f64>() / 200_001.0;
        // Moments of a normal distribution: 0, 1, 0, 3; each within five standard errors.
        assert!(mean(1).abs() < 0.012 && (mean(2) - 1.0).abs() < 0.016 && mean(3).abs() < 0.045);
        assert!((mean(4) - 3.0).abs() < 0.11, "{}", mean(4));
        let neighbours: f64 = noise.windows(2).map(|pair| f64::from(pair[0] * pair[1]) / 4.0).sum::<f64>() / 2e5;
        assert!(neighbours.abs() < 0.012, "{neighbours}");
    }
}
