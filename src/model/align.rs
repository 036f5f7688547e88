//! Monotonic alignment search (Glow-TTS, Kim et al. 2020, algorithm 1): the most likely assignment of frames to tokens
//! that starts at the first token, ends at the last, and never steps back or skips.

use crate::feed::Packed;
use rayon::prelude::*;
use tch::{Device, Kind, Tensor};
use torchx::fused::plain;
use torchx::{Arg, Kernel};

const SOURCE: &str = include_str!("align.cu");
/// As in the source: frames and tokens of a tile of scores, channels of it at once, tokens that a warp holds, warps of a block at most, frames
/// whose bits fill a word, and frames of a chunk.
const TILE: [i64; 2] = [128, 64];
const SLAB: i64 = 80;
const PER_WARP: i64 = 128;
const WARPS: i64 = 8;
const GROUP: i64 = 8;
const CHUNK: i64 = 16;

pub struct Aligner {
    /// Present on a GPU; the search then never leaves it.
    kernels: Option<Kernels>,
}

struct Kernels {
    scores: Kernel,
    align: Kernel,
}

impl Aligner {
    pub fn new(device: Device) -> Result<Self, torchx::Error> {
        let compile = || Kernels::compile(device);
        Ok(Aligner { kernels: device.is_cuda().then(compile).transpose()? })
    }

    /// For every frame the packed index of its token; gaps point at index 0, and every loss masks them. The first columns
    /// of `table` (`[text, channels or more]`) are the tokens' mean frames.
    ///
    /// A frame under a token's mean has log-likelihood `-|mel - mean|² / 2`. The term in `mel` alone is the same on
    /// every path, so `mel · mean - |mean|² / 2` finds the same path for a third of the work.
    pub fn search(&self, table: &Tensor, mel: &Tensor, text: &Packed, frames: &Packed) -> Tensor {
        let table = table.detach();
        match &self.kernels {
            Some(kernels) => kernels.run(&table, mel, text, frames).expect("shapes are fixed by construction"),
            None => on_cpu(&table, mel, text, frames),
        }
    }
}

impl Kernels {
    fn compile(device: Device) -> Result<Self, torchx::Error> {
        let compile = |name| Kernel::compile(SOURCE, name, device);
        Ok(Kernels { scores: compile("scores")?, align: compile("align")? })
    }

    /// Two launches for the whole batch; the host neither copies nor waits.
    fn run(&self, table: &Tensor, mel: &Tensor, text: &Packed, frames: &Packed) -> Result<Tensor, torchx::Error> {
        let narrow = table.kind() == Kind::BFloat16;
        let table = if narrow { table.contiguous() } else { table.to_kind(Kind::Float).contiguous() };
        let mel = mel.contiguous();
        let (channels, warps) = (mel.size()[1], shares(text.longest_segment, PER_WARP));
        let (stride, utterances) = (warps * PER_WARP, frames.capacity());
        let empty = |size: &[i64], kind| Tensor::empty(size, (kind, mel.device()));
        let scores = empty(&[frames.len(), stride], Kind::Float);
        // A word holds what is known of the four tokens of a lane.
        let words = |rows: i64| empty(&[rows, stride / 4], Kind::Int);
        let (advanced, links) =
            (words(frames.len() / GROUP + 2 * utterances), words(frames.len() / CHUNK + utterances));
        let last = empty(&[frames.len(), 2], Kind::Float);
        let token_of_frame = Tensor::zeros([frames.len()], (Kind::Int, mel.device()));
        let spans = [&text.starts, &text.lens, &frames.starts, &frames.lens].map(Arg::Tensor);
        let number = |value: i64| Arg::I32(value as i32);

        let tiles = |longest: i64, tile: i64| shares(longest, tile) as u32;
        let grid = [tiles(frames.longest_segment, TILE[0]), tiles(text.longest_segment, TILE[1]), utterances as u32];
        let shared_bytes = (TILE.iter().sum::<i64>() * shares(channels.min(SLAB), 4) * 4 * 4) as u32;
        let sizes = [channels, table.size()[1], i64::from(narrow), stride].map(number);
        let args = [&[&table, &mel].map(Arg::Tensor)[..], &spans, &[Arg::Tensor(&scores)], &sizes].concat();
        self.scores.launch(grid, [256, 1, 1], shared_bytes, &args)?;

        let outputs = [&advanced, &links, &last, &token_of_frame].map(Arg::Tensor);
        let args = [&[Arg::Tensor(&scores)][..], &spans, &outputs, &[number(stride)]].concat();
        self.align.launch([utterances as u32, 1, 1], [32 * warps.min(WARPS) as u32, 1, 1], 0, &args)?;
        Ok(token_of_frame)
    }
}

fn shares(total: i64, share: i64) -> i64 {
    (total + share - 1) / share
}

fn on_cpu(table: &Tensor, mel: &Tensor, text: &Packed, frames: &Packed) -> Tensor {
    let mean = table.narrow(1, 0, mel.size()[1]).to_kind(Kind::Float);
    let bias = mean.square().sum_dim_intlist([1i64].as_slice(), false, Kind::Float) * -0.5;
    let used = spans(text).zip(spans(frames)).filter(|(text, _)| text.1 > 0);
    let jobs: Vec<Job> = used.map(|(text, frames)| Job::new(&mean, &bias, mel, text, frames)).collect();
    let paths: Vec<Vec<usize>> = jobs.par_iter().map(|job| best_path(&job.scores, job.tokens)).collect();
    let mut token_of_frame = vec![0i32; frames.len() as usize];
    for (job, path) in jobs.iter().zip(paths) {
        for (frame, token) in path.into_iter().enumerate() {
            token_of_frame[job.frame_start + frame] = (job.token_start + token) as i32;
        }
    }
    Tensor::from_slice(&token_of_frame)
}

/// Frames that each token got: `[text, 1]`, f32.
pub fn durations(token_of_frame: &Tensor, text: &Packed, frames: &Packed) -> Tensor {
    plain::lasted(token_of_frame, text.len(), &frames.mask).expect("shapes are fixed by construction")
}

struct Job {
    /// `[frames, tokens]`, row-major.
    scores: Vec<f32>,
    tokens: usize,
    token_start: usize,
    frame_start: usize,
}

/// First index and length.
type Stretch = (i64, i64);

impl Job {
    fn new(mean: &Tensor, bias: &Tensor, mel: &Tensor, text: Stretch, frames: Stretch) -> Self {
        let mean = mean.narrow(0, text.0, text.1);
        let scores = mel.narrow(0, frames.0, frames.1).matmul(&mean.transpose(0, 1));
        let scores = (scores + bias.narrow(0, text.0, text.1)).contiguous().view(-1);
        Job {
            scores: Vec::try_from(scores).expect("an f32 vector on the CPU"),
            tokens: text.1 as usize,
            token_start: text.0 as usize,
            frame_start: frames.0 as usize,
        }
    }
}

fn spans(axis: &Packed) -> impl Iterator<Item = Stretch> {
    let list =
        |tensor: &Tensor| Vec::<i32>::try_from(tensor).expect("an i32 vector on the CPU").into_iter().map(i64::from);
    list(&axis.starts).zip(list(&axis.lens))
}

/// Token of each frame on the best monotonic path through `scores` (`[frames, tokens]`). Time and memory are
/// `frames * tokens`; only one bit of each cell (stay or advance) is kept.
fn best_path(scores: &[f32], tokens: usize) -> Vec<usize> {
    let frames = scores.len() / tokens;
    assert!(frames >= tokens, "every token needs a frame: {frames} frames, {tokens} tokens");
    let mut advanced = vec![false; scores.len()];
    let mut best = vec![f32::NEG_INFINITY; tokens];
    best[0] = scores[0];
    for frame in 1..frames {
        let row = &scores[frame * tokens..][..tokens];
        // From the back, so that best[token - 1] is still the previous frame's.
        for token in (0..tokens.min(frame + 1)).rev() {
            let from_before = if token > 0 { best[token - 1] } else { f32::NEG_INFINITY };
            let advance = from_before > best[token] || token == frame;
            advanced[frame * tokens + token] = advance;
            best[token] = row[token] + if advance { from_before } else { best[token] };
        }
    }
    let mut path = vec![0; frames];
    let mut token = tokens - 1;
    for frame in (0..frames).rev() {
        path[frame] = token;
        if token > 0 && advanced[frame * tokens + token] {
            token -= 1;
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::rng::Rng;

    /// Every monotonic path, by recursion.
    fn brute_force(scores: &[f32], tokens: usize, frame: usize, token: usize) -> (f32, Vec<usize>) {
        let frames = scores.len() / tokens;
        let here = scores[frame * tokens + token];
        if frame + 1 == frames {
            let score = if token + 1 == tokens { here } else { f32::NEG_INFINITY };
            return (score, vec![token]);
        }
        let next = (token..(token + 2).min(tokens)).map(|next| brute_force(scores, tokens, frame + 1, next));
        let (score, tail) = next.max_by(|a, b| a.0.total_cmp(&b.0)).expect("at least one way on");
        (here + score, [vec![token], tail].concat())
    }

    #[test]
    fn equals_brute_force_on_small_cases() {
        let mut rng = Rng::new(&[11]);
        for _ in 0..300 {
            let tokens = 1 + rng.below(5);
            let frames = tokens + rng.below(6);
            let scores: Vec<f32> = (0..frames * tokens).map(|_| rng.below(1_000_000) as f32 / 1e5).collect();
            let (_, expected) = brute_force(&scores, tokens, 0, 0);
            assert_eq!(best_path(&scores, tokens), expected, "{frames} frames, {tokens} tokens");
        }
    }
}
