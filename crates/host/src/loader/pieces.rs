//! Long clips in pieces: the sound is cut in pauses, the text between words at the same share of the speech.
//!
//! Nothing tells which word a pause stands behind, so a piece's text may be a word off; that is why it is asked for.

use super::layout::Length;
use crate::cache::ClipAudio;
use std::ops::Range;

/// Frames below this share of the mean level are quiet: -20 dB.
const QUIET: f32 = 0.1;

/// Stretch of a clip. The language tag, token 0, is said before every piece and is in none of these ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub clip: u32,
    pub frames: Range<u32>,
    pub tokens: Range<u32>,
}

impl Piece {
    pub fn new(clip: usize, frames: Range<usize>, tokens: Range<usize>) -> Self {
        let short = |range: Range<usize>| range.start as u32..range.end as u32;
        Piece { clip: clip as u32, frames: short(frames), tokens: short(tokens) }
    }

    pub fn length(&self) -> Length {
        Length { frames: self.frames.len(), tokens: self.tokens.len() + 1 }
    }
}

/// A clip to be cut.
pub(super) struct LongClip<'a> {
    /// Loudness of each frame, on any linear scale.
    pub levels: Vec<f32>,
    pub tokens: &'a [i32],
    /// Ids behind which a text may be cut, sorted.
    pub breaks: &'a [i32],
    pub max: Length,
}

impl LongClip<'_> {
    /// Pieces that lie end to end and keep to the limits; none where the text has no place to cut.
    pub fn pieces(&self, clip: usize) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let quiet_below = QUIET * self.levels.iter().sum::<f32>() / self.levels.len() as f32;
        self.cut(Piece::new(clip, 0..self.levels.len(), 1..self.tokens.len()), quiet_below, &mut pieces)?;
        Some(pieces)
    }

    fn cut(&self, piece: Piece, quiet_below: f32, into: &mut Vec<Piece>) -> Option<()> {
        let length = piece.length();
        if length.frames <= self.max.frames && length.tokens <= self.max.tokens {
            into.push(piece);
            return (length.frames >= length.tokens).then_some(());
        }
        let (frames, tokens) = (long(&piece.frames), long(&piece.tokens));
        let at = self.pause(&frames, quiet_below)?;
        let speech = |frames: Range<usize>| self.levels[frames].iter().filter(|level| **level >= quiet_below).count();
        let (before, all) = (speech(frames.start..at), speech(frames.clone()).max(1));
        let word = self.word(&tokens, tokens.start + (tokens.len() * before + all / 2) / all)?;
        let clip = piece.clip as usize;
        self.cut(Piece::new(clip, frames.start..at, tokens.start..word), quiet_below, into)?;
        self.cut(Piece::new(clip, at..frames.end, word..tokens.end), quiet_below, into)
    }

    /// The middle of the longest pause in the middle half, where neither side needs more pieces than it must; the
    /// quietest frame there, where nothing is quiet.
    fn pause(&self, frames: &Range<usize>, quiet_below: f32) -> Option<usize> {
        let quarter = frames.len() / 4;
        let side = self.max.frames * frames.len().div_ceil(self.max.frames).div_ceil(2);
        let first = (frames.start + quarter.max(1)).max(frames.end.saturating_sub(side));
        let inner = first..(frames.end - quarter).min(frames.start + side + 1);
        let (mut longest, mut run) = (0..0, 0..0);
        for at in inner.clone() {
            if self.levels[at] < quiet_below {
                run = if run.end == at { run.start..at + 1 } else { at..at + 1 };
                longest = if run.len() > longest.len() { run.clone() } else { longest };
            }
        }
        if !longest.is_empty() {
            return Some(longest.start + longest.len() / 2);
        }
        inner.min_by(|a, b| self.levels[*a].total_cmp(&self.levels[*b]))
    }

    /// The start of a word inside `tokens`, the nearest to `wanted`.
    fn word(&self, tokens: &Range<usize>, wanted: usize) -> Option<usize> {
        let is_break = |at: usize| self.breaks.binary_search(&self.tokens[at]).is_ok();
        let starts = (tokens.start + 1..tokens.end).filter(|&at| is_break(at - 1) && !is_break(at));
        starts.min_by_key(|start| start.abs_diff(wanted))
    }
}

fn long(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Loudness of each of `frames` frames.
pub(super) fn levels(sound: ClipAudio, frames: usize, values_per_frame: usize) -> Vec<f32> {
    let mut levels: Vec<f32> = match sound {
        ClipAudio::Pcm(samples) => samples
            .chunks(values_per_frame)
            .map(|hop| hop.iter().map(|x| f32::from(x.unsigned_abs())).sum::<f32>() / hop.len() as f32)
            .collect(),
        ClipAudio::Mel(bands) => bands
            .chunks(values_per_frame)
            .map(|frame| (frame.iter().map(|x| x.to_f32()).sum::<f32>() / frame.len() as f32).exp())
            .collect(),
    };
    levels.resize(frames, 0.0); // the last frame is centred on the last sample
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: i32 = 4;

    fn clip(levels: Vec<f32>, tokens: &[i32], max: Length) -> Option<Vec<Piece>> {
        LongClip { levels, tokens, breaks: &[SPACE], max }.pieces(0)
    }

    #[test]
    fn the_cut_is_in_the_longest_pause_and_between_words() {
        // Speech, a short pause, speech, a long pause, speech: 10 + 2 + 8 + 6 + 14 frames.
        let level = |at: usize| if (10..12).contains(&at) || (20..26).contains(&at) { 0.0 } else { 1.0 };
        let tokens = [2, 9, 9, 9, 9, SPACE, 9, 9, 9, SPACE, 9, 9, 9, 9, 9];
        let pieces = clip((0..40).map(level).collect(), &tokens, Length { frames: 30, tokens: 20 }).unwrap();
        // 18 of 32 speech frames lie before the pause, so of 14 letters 8: the word that starts at 10 is the nearest.
        assert_eq!(pieces, [Piece::new(0, 0..23, 1..10), Piece::new(0, 23..40, 10..15)]);
    }

    #[test]
    fn one_long_word_cannot_be_cut() {
        assert_eq!(clip(vec![1.0; 100], &[2, 9, 9, 9], Length { frames: 50, tokens: 20 }), None);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_clip_and_keep_to_the_limits(
            levels in prop::collection::vec(0.0f32..1.0, 50..2000), word in 1usize..12, per_token in 2usize..20,
            max_frames in 40usize..400, max_tokens in 16usize..100,
        ) {
            let count = 1 + levels.len() / per_token;
            let tokens: Vec<i32> = (0..count).map(|at| if at % (word + 1) == 0 { SPACE } else { 9 }).collect();
            let max = Length { frames: max_frames, tokens: max_tokens };
            if let Some(pieces) = clip(levels.clone(), &tokens, max) {
                prop_assert_eq!((pieces[0].frames.start, pieces[0].tokens.start), (0, 1));
                let last = pieces.last().unwrap();
                prop_assert_eq!((last.frames.end as usize, last.tokens.end as usize), (levels.len(), tokens.len()));
                for pair in pieces.windows(2) {
                    prop_assert_eq!((pair[0].frames.end, pair[0].tokens.end), (pair[1].frames.start, pair[1].tokens.start));
                }
                for piece in &pieces {
                    let length = piece.length();
                    prop_assert!(length.frames <= max.frames && length.tokens <= max.tokens);
                    prop_assert!(length.frames >= length.tokens && !piece.tokens.is_empty());
                }
            }
        }
    }
}
