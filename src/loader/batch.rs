//! One batch in host memory, and the clips it is made of.

use super::layout::{Axis, Budget, Length, Span};
use crate::cache::Cache;

/// The clips of a run that fit its budget, with their lengths in frames and tokens.
pub struct Dataset {
    cache: Cache,
    /// Indices into the cache, in corpus order.
    clips: Vec<usize>,
    lengths: Vec<Length>,
    hop_samples: usize,
}

/// Clips that a run does not train on, by reason. Reported, never silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub too_many_frames: usize,
    pub too_many_tokens: usize,
    /// Monotonic alignment gives every token at least one frame.
    pub fewer_frames_than_tokens: usize,
}

impl LeftOut {
    pub fn total(&self) -> usize {
        self.too_many_frames + self.too_many_tokens + self.fewer_frames_than_tokens
    }
}

impl Dataset {
    pub fn new(cache: Cache, hop_samples: usize, max: Length) -> (Self, LeftOut) {
        let (mut clips, mut lengths, mut left_out) = (Vec::new(), Vec::new(), LeftOut::default());
        for index in 0..cache.len() {
            let length = Length { frames: frames_of(cache.samples(index), hop_samples), tokens: cache.tokens(index) };
            if length.frames > max.frames {
                left_out.too_many_frames += 1;
            } else if length.tokens > max.tokens {
                left_out.too_many_tokens += 1;
            } else if length.frames < length.tokens {
                left_out.fewer_frames_than_tokens += 1;
            } else {
                clips.push(index);
                lengths.push(length);
            }
        }
        (Dataset { cache, clips, lengths, hop_samples }, left_out)
    }

    pub fn lengths(&self) -> &[Length] {
        &self.lengths
    }

    /// Seconds of speech in the whole set.
    pub fn seconds(&self, rate_hz: u32) -> f64 {
        self.lengths.iter().map(|l| l.frames * self.hop_samples).sum::<usize>() as f64 / f64::from(rate_hz)
    }

    /// Lays the given clips into one batch.
    pub fn batch(&self, clips: &[usize], budget: &Budget) -> HostBatch {
        let lengths: Vec<Length> = clips.iter().map(|&clip| self.lengths[clip]).collect();
        let (text_spans, frame_spans) = budget.place(&lengths);
        let mut pcm = vec![0i16; budget.frames * self.hop_samples];
        let mut tokens = vec![0i32; budget.tokens];
        for ((&clip, text), frames) in clips.iter().zip(&text_spans).zip(&frame_spans) {
            let clip = self.cache.clip(self.clips[clip]);
            let start = frames.start * self.hop_samples;
            pcm[start..start + clip.pcm.len()].copy_from_slice(clip.pcm);
            tokens[text.range()].copy_from_slice(clip.tokens);
        }
        let text = Axis::new(&text_spans, budget.tokens, budget.utterances, budget.longest_tokens);
        let frames = Axis::new(&frame_spans, budget.frames, budget.utterances, budget.longest_frames);
        HostBatch { pcm, tokens, text, frames, text_spans, frame_spans }
    }
}

/// Frames of a clip: one at each hop from the first sample to the last (`librosa` with `center=True`).
fn frames_of(samples: usize, hop_samples: usize) -> usize {
    samples / hop_samples + 1
}

/// Fixed-size arrays of one batch. A `Batch` is the same on a device, with mel frames in place of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBatch {
    /// Samples; frame `t` is centred on sample `t * hop`.
    pub pcm: Vec<i16>,
    pub tokens: Vec<i32>,
    pub text: Axis,
    pub frames: Axis,
    pub text_spans: Vec<Span>,
    pub frame_spans: Vec<Span>,
}

impl HostBatch {
    pub fn utterances(&self) -> usize {
        self.frame_spans.len()
    }

    /// Frames that hold speech; the rest are gaps and padding.
    pub fn speech_frames(&self) -> usize {
        self.frame_spans.iter().map(|span| span.len).sum()
    }
}
