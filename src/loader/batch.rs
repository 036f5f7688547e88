//! One batch in host memory, and the clips it is made of.

use super::layout::{Axis, Budget, Length, Span};
use crate::cache::{self, Cache, SoundBuf};

/// The clips of a run that fit its budget, with their lengths in frames and tokens.
pub struct Dataset {
    cache: Cache,
    /// Indices into the cache, in corpus order.
    clips: Vec<usize>,
    lengths: Vec<Length>,
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
    pub fn new(cache: Cache, max: Length) -> (Self, LeftOut) {
        let (mut clips, mut lengths, mut left_out) = (Vec::new(), Vec::new(), LeftOut::default());
        for index in 0..cache.len() {
            let length = Length { frames: cache.frames(index), tokens: cache.tokens(index) };
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
        (Dataset { cache, clips, lengths }, left_out)
    }

    pub fn lengths(&self) -> &[Length] {
        &self.lengths
    }

    /// Seconds of speech in the whole set.
    pub fn seconds(&self, rate_hz: u32) -> f64 {
        self.lengths.iter().map(|l| l.frames * self.cache.hop_samples()).sum::<usize>() as f64 / f64::from(rate_hz)
    }

    /// Lays the given clips into one batch. Fails where a clip turns out to be damaged.
    pub fn batch(&self, clips: &[usize], budget: &Budget) -> Result<HostBatch, cache::Error> {
        let lengths: Vec<Length> = clips.iter().map(|&clip| self.lengths[clip]).collect();
        let (text_spans, frame_spans) = budget.place(&lengths);
        let mut sound = self.cache.zeros(budget.frames);
        let mut tokens = vec![0i32; budget.tokens];
        for ((&clip, text), frames) in clips.iter().zip(&text_spans).zip(&frame_spans) {
            let clip = self.cache.clip(self.clips[clip])?;
            sound.put(frames.start * self.cache.values_per_frame(), clip.sound);
            tokens[text.range()].copy_from_slice(clip.tokens);
        }
        let text = Axis::new(&text_spans, budget.tokens, budget.utterances, budget.longest_tokens);
        let frames = Axis::new(&frame_spans, budget.frames, budget.utterances, budget.longest_frames);
        Ok(HostBatch { sound, tokens, text, frames, text_spans, frame_spans })
    }
}

/// Fixed-size arrays of one batch. A `Batch` is the same on a device, with mel frames in any case.
#[derive(Clone, Debug, PartialEq)]
pub struct HostBatch {
    /// What the cache holds. Samples: frame `t` is centred on sample `t * hop`. Mel: `[frames, n_mels]`, 0 in gaps.
    pub sound: SoundBuf,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio;
    use crate::config::{CacheContent, Config};
    use crate::corpus::Utterance;
    use crate::text::Tokenizer;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    /// Clips of 1, 2 and 3 tenths of a second, each of one value: sample `n` of clip `k` is `k + 1` eighths.
    fn cache(dir: &Path, content: CacheContent) -> Cache {
        let utterance = |index: usize| {
            let audio = dir.join(format!("{index}.wav"));
            audio::write_wav(&audio, &vec![0.125 * (index + 1) as f32; 1600 * (index + 1)], 16_000).unwrap();
            Utterance { id: index.to_string(), audio, text: "a".into(), speaker: "s".into(), language: None }
        };
        let utterances: Vec<_> = (0..3).map(utterance).collect();
        let mut config = Config::default();
        (config.data.sample_rate, config.data.cache_dir) = (16_000, Some(dir.join("cache")));
        (config.data.trim_silence, config.data.normalize_audio) = (false, false);
        (config.data.cache_content, config.data.language) = (content, "en".into());
        let tokenizer = Tokenizer::fit([("a", "en")].into_iter());
        cache::open(&utterances, &tokenizer, &config, &|_| (), &AtomicBool::new(false)).unwrap().0
    }

    #[test]
    fn samples_and_mel_frames_lie_where_the_spans_say() {
        let dir = tempfile::tempdir().unwrap();
        for content in [CacheContent::Pcm, CacheContent::Mel] {
            let cache = cache(dir.path(), content);
            let (dataset, left_out) = Dataset::new(cache.clone(), Length { frames: 100, tokens: 10 });
            assert_eq!((left_out.total(), dataset.lengths()[2].frames), (0, 4800 / 256 + 1));
            let budget = Budget::packed(dataset.lengths(), 4);
            let batch = dataset.batch(&[2, 0], &budget).unwrap();
            let mut expected = cache.zeros(budget.frames);
            for (span, clip) in batch.frame_spans.iter().zip([2, 0]) {
                expected.put(span.start * cache.values_per_frame(), cache.clip(clip).unwrap().sound);
            }
            assert!(batch.sound == expected);
            assert_eq!((batch.speech_frames(), expected == cache.zeros(budget.frames)), (19 + 7, false));
        }
    }
}
