//! The network as speech uses it: clauses of many utterances in one forward pass, each as it would come out alone.
//!
//! Two stages, because the host must know how long speech lasts before it can lay frames out: text to durations and
//! content, then frames to sound. On a GPU both are padded to a ladder of sizes and replayed as captured graphs.

use super::Options;
use super::backend::VocoderBackend;
use super::stages::{Decoded, Extent, Key, Stages};
use crate::checkpoint::voice::Prompt;
use crate::feed::{MelStats, Packed};
use crate::model::{self, Branches, Voice};
use anyhow::{Result, ensure};
use host::loader::{AxisTables, GAP, Span};
use host::rng::Rng;
use std::cell::RefCell;
use std::ops::Range;
use tch::{Device, Kind, Tensor};

/// A token that would last longer than this is a fault of the model, not speech: about 4.6 s.
pub const MOST_FRAMES_PER_TOKEN: f64 = 400.0;
/// So is a clause: about 48 s. It bounds the memory of a pass.
pub const MOST_FRAMES: f64 = 4096.0;
/// More than this in one pass gains nothing, and costs memory: rows of the decoder for all clauses together, and clauses.
const PASS_ROWS: usize = 49_152;
const PASS_CLAUSES: usize = 128;
/// Speech has some six frames a token; good enough to warm up with.
const USUAL_FRAMES_PER_TOKEN: f64 = 6.0;

/// What is spoken in one piece.
pub struct Clause {
    pub tokens: Vec<i32>,
    /// A number of the tokenizer's.
    pub language: usize,
    /// Where the voice clones, always there.
    pub prompt: Option<Prompt>,
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
            for pass in passes(some, &lasting, self.voice.n_mels() as usize) {
                for (index, wave) in pass.iter().zip(self.sound(&pass, some, &lasting, &content)?) {
                    waves[*index] = wave;
                }
            }
            spoken.extend(waves);
        }
        Ok(spoken)
    }

    /// Captures the sizes that most speech has, so that the first request need not wait for it.
    pub fn warm_up(&mut self, prompt: Option<&Prompt>, options: &Options) -> Result<()> {
        let given = self.frames_per_token.replace(USUAL_FRAMES_PER_TOKEN);
        // Each on a rung of its own, from one and a half seconds to seventeen.
        for tokens in [20, 30, 40, 60, 80, 120, 168, 240] {
            let (tokens, prompt) = (vec![1; tokens], prompt.cloned());
            let clause = Clause { tokens, language: 0, prompt, options: *options, seed: [0, 0] };
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
        let work = |inputs: &[Tensor]| {
            let text = axis.packed(&inputs[0]);
            let (frames, content) = self.voice.plan(&part(&inputs[0], &tokens), &part(&inputs[0], &languages), &text);
            vec![frames, content]
        };
        let key = Key { axis: axis.extent(), decoded: None };
        let outputs = self.stages.borrow_mut().run(key, vec![self.moved(&ints)], work)?;
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
        let spoken: Vec<(&Clause, &Lasting)> = pass.iter().map(|&index| (clauses[index], &lasting[index])).collect();
        let laid = Laid::new(&spoken, self.voice.n_mels() as usize, self.voice.clones(), self.sizes);
        let content = content.index_select(0, &self.moved(&laid.token_of_frame));
        let mut inputs = vec![self.moved(&laid.frames.tables()), self.moved(&laid.ints), content];
        inputs.extend([&laid.noise, &laid.masks].map(|values| self.floats(values)));
        inputs.extend((!laid.context.is_empty()).then(|| self.floats(&laid.context)));
        let steps = spoken[0].0.options.sampling.steps;
        let work = |inputs: &[Tensor]| {
            let frames = laid.frames.packed(&inputs[0]);
            let branches = laid.branches(&inputs[1], &inputs[4], inputs.get(5));
            let mel = self.voice.decode(&inputs[2], &laid.by_band(&inputs[3]), steps, &branches);
            vec![self.vocoder_backend.packed(&self.stats.restore(&mel), &frames.mask)]
        };
        let decoded = Decoded { steps, branches: laid.count, rows: laid.rows.extent() };
        let key = Key { axis: laid.frames.extent(), decoded: Some(decoded) };
        let outputs = self.stages.borrow_mut().run(key, inputs, work)?;
        Ok(self.vocoder_backend.cut(&outputs[0], &laid.frames.spans, self.hop_samples))
    }

    /// Samples of a clause that lasts as it does in a recording of it (`[frames, n_mels]`, log-mel).
    pub fn speak_along(&self, clause: &Clause, log_mel: &Tensor) -> Result<Vec<f32>> {
        let (frame_count, tokens) = (log_mel.size()[0] as usize, clause.tokens.len());
        ensure!(frame_count >= tokens, "{frame_count} frames are too few for {tokens} tokens");
        let (mut lasting, content) = self.plan(&[clause])?;
        let (text, frames) = (Room::new(&[tokens], self.sizes), Room::new(&[frame_count], self.sizes));
        let mut ids = clause.tokens.clone();
        ids.resize(text.total, 0);
        let mut languages = vec![0; text.capacity];
        languages[0] = clause.language as i32;
        let [text_axis, frame_axis] = [&text, &frames].map(|room| room.packed(&self.moved(&room.tables())));
        let mel = self.padded(log_mel, &frames);
        let (ids, languages) = (self.moved(&ids), self.moved(&languages));
        let lasted = self.voice.recorded_durations(&ids, &languages, &text_axis, &mel, &frame_axis);
        let lasted: Vec<f32> = Vec::try_from(lasted.to_device(Device::Cpu).view(-1))?;
        lasting[0].frames = lasted[text.spans[0].range()].iter().map(|frames| *frames as usize).collect();
        Ok(self.sound(&[0], &[clause], &lasting, &content)?.remove(0))
    }

    /// How the speaker of log-mel frames (`[frames, n_mels]`) sounds to the decoder.
    pub fn describe(&self, log_mel: &Tensor) -> Vec<f32> {
        let frames = Room::new(&[log_mel.size()[0] as usize], self.sizes);
        let axis = frames.packed(&self.moved(&frames.tables()));
        let described = self.voice.describe(&self.padded(log_mel, &frames), &axis);
        Vec::try_from(described.to_device(Device::Cpu)).expect("floats on the CPU")
    }

    /// Normalised, with gaps behind them.
    fn padded(&self, log_mel: &Tensor, room: &Room) -> Tensor {
        self.stats.apply(log_mel).constant_pad_nd([0, 0, 0, room.total as i64 - log_mel.size()[0]])
    }

    /// Samples of one utterance's log-mel frames, `[frames, n_mels]`.
    pub fn vocode(&self, log_mel: &Tensor) -> Vec<f32> {
        self.vocoder_backend.waveform(log_mel, self.hop_samples)
    }

    fn moved(&self, ints: &[i32]) -> Tensor {
        Tensor::from_slice(ints).to_device(self.device)
    }

    fn floats(&self, values: &[f32]) -> Tensor {
        Tensor::from_slice(values).to_device(self.device)
    }
}

/// Keeps the weights of products (`torchx::with_products`) as what they are used as, so that no pass casts them again. The
/// others stay f32, as kernels and norms want them.
pub fn narrow_weights(products: Vec<Tensor>, kind: Kind) {
    for mut weight in products.into_iter().filter(|_| kind != Kind::Float) {
        weight.set_data(&weight.to_kind(kind));
    }
}

/// Normalised mel frames `[frames, n_mels]` of one utterance, and how many of them each token lasts. `language` is a number of the tokenizer's; `prompt` is there
/// where the voice clones.
pub fn speak_tokens(
    voice: &Voice,
    tokens: &[i32],
    language: usize,
    prompt: Option<Prompt>,
    options: &Options,
    device: Device,
) -> (Tensor, Vec<usize>) {
    let moved = |ints: &[i32]| Tensor::from_slice(ints).to_device(device);
    let floats = |values: &[f32]| Tensor::from_slice(values).to_device(device);
    let text = Room::new(&[tokens.len()], Sizes::Close);
    let mut ids = tokens.to_vec();
    ids.resize(text.total, 0);
    let (expected, content) =
        voice.plan(&moved(&ids), &moved(&[language as i32]), &text.packed(&moved(&text.tables())));
    let expected: Vec<f64> = Vec::try_from(expected / options.speed).expect("one number a token");
    let lasting = Lasting { first_token: 0, frames: whole_frames(&expected[..tokens.len()]) };
    let clause = Clause { tokens: tokens.to_vec(), language, prompt, options: *options, seed: [options.seed, 0] };
    let laid = Laid::new(&[(&clause, &lasting)], voice.n_mels() as usize, voice.clones(), Sizes::Close);
    let content = content.index_select(0, &moved(&laid.token_of_frame));
    let context = (!laid.context.is_empty()).then(|| floats(&laid.context));
    let branches = laid.branches(&moved(&laid.ints), &floats(&laid.masks), context.as_ref());
    let mel = voice.decode(&content, &laid.by_band(&floats(&laid.noise)), options.sampling.steps, &branches);
    (mel.narrow(0, 0, lasting.total() as i64), lasting.frames)
}

/// One way to condition the decoder on a clause; how much its velocity counts.
struct Branch<'a> {
    /// Frames in front, `[frames * n_mels]`.
    prompt: &'a [f32],
    content: bool,
    weight: f64,
}

impl Clause {
    fn branches(&self) -> Vec<Branch<'_>> {
        let parts = self.prompt.as_ref().map_or(&[][..], |prompt| &prompt.parts);
        let shares: Vec<f64> = parts.iter().map(|(_, share)| *share).collect();
        let branches = self.options.sampling.branches(&shares).into_iter();
        let laid = |model::Branch { speaker, content, weight }| {
            let prompt = speaker.map_or(&[][..], |speaker| &parts[speaker].0);
            Branch { prompt, content, weight }
        };
        branches.map(laid).collect()
    }

    /// What clauses of one pass have in common: steps, and branches.
    fn manner(&self) -> (usize, usize) {
        (self.options.sampling.steps, self.branches().len())
    }
}

/// Clauses (by index) that go through the decoder together: of one manner, and no more than fit.
fn passes(clauses: &[&Clause], lasting: &[Lasting], n_mels: usize) -> Vec<Vec<usize>> {
    let mut passes: Vec<((usize, usize), usize, Vec<usize>)> = Vec::new();
    for (index, clause) in clauses.iter().enumerate() {
        let rows = |branch: &Branch| branch.prompt.len() / n_mels + lasting[index].total() + GAP;
        let (manner, rows) = (clause.manner(), clause.branches().iter().map(rows).sum::<usize>());
        match passes.iter_mut().find(|(other, used, _)| *other == manner && used + rows <= PASS_ROWS) {
            Some((_, used, pass)) => {
                *used += rows;
                pass.push(index);
            }
            None => passes.push((manner, rows, vec![index])),
        }
    }
    passes.into_iter().map(|(_, _, pass)| pass).collect()
}

/// Clauses of one pass laid out for the decoder: an axis of frames to speak, and one of rows with the frames of every
/// branch, a prompt's in front of them.
struct Laid {
    frames: Room,
    rows: Room,
    /// Branches of each clause.
    count: usize,
    /// `[frames]`
    token_of_frame: Vec<i32>,
    /// `[frames, n_mels]`
    noise: Vec<f32>,
    /// Tables of the rows; `[rows]`, the frame of each; `[branches, frames]`, the row of each frame.
    ints: Vec<i32>,
    /// `[rows]`, where content is given; `[rows]`, where context is; `[branches, frames]`, weights.
    masks: Vec<f32>,
    /// `[rows, n_mels]`; empty where the voice does not clone.
    context: Vec<f32>,
    n_mels: usize,
}

impl Laid {
    fn new(spoken: &[(&Clause, &Lasting)], n_mels: usize, clones: bool, sizes: Sizes) -> Self {
        let branches: Vec<Vec<Branch>> = spoken.iter().map(|(clause, _)| clause.branches()).collect();
        let lens: Vec<usize> = spoken.iter().map(|(_, lasting)| lasting.total()).collect();
        let row_lens: Vec<usize> = branches
            .iter()
            .zip(&lens)
            .flat_map(|(branches, len)| branches.iter().map(move |branch| branch.prompt.len() / n_mels + len))
            .collect();
        let (frames, rows, count) = (Room::new(&lens, sizes), Room::new(&row_lens, sizes), branches[0].len());
        let mut token_of_frame = vec![0; frames.total];
        let mut noise = vec![0f32; frames.total * n_mels];
        let (mut frame_of_row, mut row_of_frame) = (vec![0i32; rows.total], vec![0i32; count * frames.total]);
        let (mut content, mut given) = (vec![0f32; rows.total], vec![0f32; rows.total]);
        let mut weights = vec![0f32; count * frames.total];
        let mut context = vec![0f32; if clones { rows.total * n_mels } else { 0 }];
        for (index, ((clause, lasting), span)) in spoken.iter().zip(&frames.spans).enumerate() {
            lasting.write(&mut token_of_frame[span.range()]);
            let values = &mut noise[span.start * n_mels..span.end() * n_mels];
            normal(&clause.seed, clause.options.sampling.temperature as f32, values);
            for (number, branch) in branches[index].iter().enumerate() {
                let row = rows.spans[index * count + number];
                let first = row.start + branch.prompt.len() / n_mels;
                given[row.start..first].fill(1.0);
                if !branch.prompt.is_empty() {
                    context[row.start * n_mels..first * n_mels].copy_from_slice(branch.prompt);
                }
                content[first..row.end()].fill(f32::from(u8::from(branch.content)));
                frame_of_row[first..row.end()].iter_mut().zip(span.start..).for_each(|(of, at)| *of = at as i32);
                let own = number * frames.total + span.start..number * frames.total + span.end();
                row_of_frame[own.clone()].iter_mut().zip(first..).for_each(|(of, at)| *of = at as i32);
                weights[own].fill(branch.weight as f32);
            }
        }
        let ints = [rows.tables(), frame_of_row, row_of_frame].concat();
        let masks = [content, given, weights].concat();
        Laid { frames, rows, count, token_of_frame, noise, ints, masks, context, n_mels }
    }

    /// `[rows or frames, n_mels]`
    fn by_band(&self, values: &Tensor) -> Tensor {
        values.view([-1, self.n_mels as i64])
    }

    /// From `ints`, `masks` and `context` on a device. Depends on sizes alone, never on what is spoken.
    fn branches(&self, ints: &Tensor, masks: &Tensor, context: Option<&Tensor>) -> Branches {
        let (rows, frames) = (self.rows.total as i64, self.frames.total as i64);
        let [tables, frame_of_row, row_of_frame] = ints
            .split_with_sizes([ints.size()[0] - rows - self.count as i64 * frames, rows, self.count as i64 * frames], 0)
            .try_into()
            .expect("three parts");
        let [content, given, weights] =
            masks.split_with_sizes([rows, rows, self.count as i64 * frames], 0).try_into().expect("three parts");
        Branches {
            rows: self.rows.packed(&tables),
            frame_of_row,
            content_mask: content.unsqueeze(1),
            context: context.map(|mel| (self.by_band(mel), given.unsqueeze(1))),
            row_of_frame: row_of_frame.view([-1, frames]),
            weights: weights.view([-1, frames]),
        }
    }
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
        let bits = rng.next_u64();
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

    fn extent(&self) -> Extent {
        Extent { total: self.total, capacity: self.capacity, longest: self.longest }
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
