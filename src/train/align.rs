//! Durations of every clip, as a trained voice finds them: what `myxtts align` writes into the cache.

use crate::checkpoint::voice::fingerprint;
use crate::checkpoint::{Checkpoint, weights_file};
use crate::feed::{Batch, MelStats, Purpose};
use crate::model::Voice;
use crate::run::{RunContext, activation_kind, start_feed};
use anyhow::Result;
use host::cache::durations::{self, Aligned};
use host::loader::{Dataset, Position};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tch::{Device, Tensor};

/// Seconds above which a token is suspicious: a pause, or text that was not spoken.
const LONG_S: f64 = 1.0;
/// Tokens in a row with one frame each that are suspicious: nobody speaks that fast.
const HURRIED_TOKENS: usize = 8;
/// Suspicious clips that are named at most.
const MOST_NAMED: usize = 10;

/// What an alignment of a whole corpus found.
#[derive(Debug, Serialize)]
pub struct AlignmentSummary {
    pub file: PathBuf,
    /// Hash of the weights that aligned.
    pub checkpoint: String,
    /// Clips, or pieces of long ones.
    pub clips: usize,
    pub frames: usize,
    pub tokens: usize,
    pub frames_per_token: f64,
    pub suspicious: usize,
    pub suspicious_share: f64,
    /// The most suspicious ones, worst first.
    pub worst: Vec<SuspiciousClip>,
    /// Clips that turned out to be damaged, and have no durations.
    pub failures: Vec<String>,
}

/// A clip whose alignment does not look like speech.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuspiciousClip {
    pub id: String,
    pub longest_token_s: f64,
    /// Tokens in a row with one frame each.
    pub hurried_tokens: usize,
}

impl SuspiciousClip {
    fn of(id: &str, durations: &[i32], frame_s: f64) -> Self {
        let (mut hurried, mut run) = (0, 0);
        for &frames in durations {
            run = if frames == 1 { run + 1 } else { 0 };
            hurried = hurried.max(run);
        }
        let longest = durations.iter().copied().max().unwrap_or(0);
        SuspiciousClip { id: id.to_owned(), longest_token_s: f64::from(longest) * frame_s, hurried_tokens: hurried }
    }

    /// How far it is from what is still speech; suspicious above 1.
    fn badness(&self) -> f64 {
        // A run is suspicious from the limit on, not only above it.
        let hurried = (self.hurried_tokens + 1) as f64 / HURRIED_TOKENS as f64;
        (self.longest_token_s / LONG_S).max(hurried)
    }
}

/// Aligns all clips of a run, training and validation, and writes what was found. Nothing is written where it is
/// interrupted: `None`.
pub fn align(context: &RunContext, checkpoint: &Checkpoint) -> Result<Option<AlignmentSummary>> {
    let RunContext { config, data, roles, bar, stop, .. } = *context;
    let kind = activation_kind(&config.training, roles.model)?;
    let (_store, voice) = checkpoint.voice(roles.model, kind)?;
    let stats = checkpoint.state.mel_stats;
    let sets: Vec<&Arc<Dataset>> = [&data.train].into_iter().chain(&data.validation).collect();
    bar.set_length(sets.iter().map(|set| set.lengths().len() as u64).sum());
    let (mut aligned, mut failures) = (Vec::new(), Vec::new());
    for set in sets {
        let part = data.with(set.clone(), data.budget);
        let aligner = SetAligner { context: &RunContext { data: &part, ..*context }, voice: &voice, stats };
        failures.extend(crate::catch(|| tch::no_grad(|| aligner.align(&mut aligned)))??);
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    let hash = fingerprint(&weights_file(checkpoint.folder(), "model"))?.to_hex().to_string();
    let file = durations::write(config, &data.tokenizer, hash.clone(), &aligned, stop)?;
    let frame_s = config.model.hop_length as f64 / f64::from(config.data.sample_rate);
    Ok(Some(summarise(&aligned, frame_s, file, hash, failures)))
}

/// Aligns one set of clips, the `train` set of its context.
pub(super) struct SetAligner<'a> {
    pub(super) context: &'a RunContext<'a>,
    pub(super) voice: &'a Voice,
    /// Normalisation that the voice was trained with.
    pub(super) stats: MelStats,
}

impl SetAligner<'_> {
    /// One epoch through the training's own pipeline. Returns what was damaged.
    pub(super) fn align(&self, into: &mut Vec<Aligned>) -> Result<Vec<String>> {
        let RunContext { config, data, bar, stop, .. } = *self.context;
        let (chunks, plan) =
            (data.train.chunks(), |chunk| data.train.plan(&data.budget, config.training.seed, 0, chunk));
        let mut at_hand = (0, plan(0));
        let mut feed = start_feed(self.context, Position::default(), self.stats, Purpose::Voice)?;
        let mut input = None;
        while !stop.load(Ordering::Relaxed) {
            let next = feed.next(&mut input)?.resume_at;
            // A batch that could not be made is left out, so the position tells which one this is.
            let (chunk, number) = match (next.epoch, next.chunk, next.batch) {
                (0, chunk, batch @ 1..) => (chunk, Some(batch as usize - 1)),
                (0, chunk, 0) => (chunk - 1, None),
                (1, 0, 0) => (chunks - 1, None),
                _ => break, // the epoch's last batch was left out
            };
            if at_hand.0 != chunk {
                at_hand = (chunk, plan(chunk));
            }
            let last = at_hand.1.len() - 1;
            let number = number.unwrap_or(last);
            let batch = input.as_ref().expect("a batch was delivered");
            let paths = Paths::of(self.voice, batch);
            let clips = at_hand.1.batch(number);
            for (index, &clip) in clips.iter().enumerate() {
                let (id, segment) = data.train.segment_of(clip as usize);
                let durations = paths.durations(index);
                if !durations.is_empty() {
                    into.push(Aligned { id: id.to_owned(), segment, durations });
                }
            }
            bar.inc(clips.len() as u64);
            if (chunk + 1, number) == (chunks, last) {
                break;
            }
        }
        Ok(feed.loader().failures().iter().map(ToString::to_string).collect())
    }
}

/// What the search found in a batch, on the host.
struct Paths {
    token_of_frame: Vec<i32>,
    /// First index and length of each utterance.
    text: Vec<(i32, i32)>,
    frames: Vec<(i32, i32)>,
}

impl Paths {
    fn of(voice: &Voice, batch: &Batch) -> Self {
        let list = |tensor: &Tensor| -> Vec<i32> {
            Vec::try_from(tensor.to_device(Device::Cpu)).expect("an i32 vector on the CPU")
        };
        let spans = |starts: &Tensor, lens: &Tensor| list(starts).into_iter().zip(list(lens)).collect();
        Paths {
            token_of_frame: list(&voice.align(batch)),
            text: spans(&batch.text.starts, &batch.text.lens),
            frames: spans(&batch.frames.starts, &batch.frames.lens),
        }
    }

    /// Frames of each token of an utterance; none where its clip is damaged.
    fn durations(&self, utterance: usize) -> Vec<i32> {
        let ((first, tokens), (start, frames)) = (self.text[utterance], self.frames[utterance]);
        let mut durations = vec![0; tokens as usize];
        for token in &self.token_of_frame[start as usize..(start + frames) as usize] {
            durations[(token - first) as usize] += 1;
        }
        durations
    }
}

fn summarise(
    aligned: &[Aligned],
    frame_s: f64,
    file: PathBuf,
    checkpoint: String,
    failures: Vec<String>,
) -> AlignmentSummary {
    let tokens: usize = aligned.iter().map(|clip| clip.durations.len()).sum();
    let frames = aligned.iter().flat_map(|clip| &clip.durations).map(|&frames| frames as usize).sum();
    let mut worst: Vec<SuspiciousClip> = aligned
        .iter()
        .map(|clip| SuspiciousClip::of(&clip.id, &clip.durations, frame_s))
        .filter(|suspect| suspect.badness() > 1.0)
        .collect();
    worst.sort_by(|a, b| b.badness().total_cmp(&a.badness()).then_with(|| a.id.cmp(&b.id)));
    let suspicious = worst.len();
    worst.truncate(MOST_NAMED);
    AlignmentSummary {
        file,
        checkpoint,
        clips: aligned.len(),
        frames,
        tokens,
        frames_per_token: frames as f64 / tokens.max(1) as f64,
        suspicious,
        suspicious_share: suspicious as f64 / aligned.len().max(1) as f64,
        worst,
        failures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clip_is_suspicious_when_it_stands_still_or_hurries() {
        let clip = |durations: &[i32]| SuspiciousClip::of("a", durations, 1.0 / 64.0);
        let hurried = |tokens: usize| clip(&[vec![5; 3], vec![1; tokens], vec![5; 3], vec![1; 2]].concat());
        assert_eq!((hurried(8).hurried_tokens, clip(&[2, 96, 7]).longest_token_s), (8, 1.5));
        assert!(hurried(8).badness() > 1.0 && clip(&[2, 65, 7]).badness() > 1.0);
        assert!(hurried(7).badness() <= 1.0 && clip(&[2, 64, 7]).badness() <= 1.0);
        assert!(hurried(20).badness() > clip(&[2, 96, 7]).badness());
    }
}
