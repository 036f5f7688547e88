//! Where the parts of a batch lie in its block of memory: one stretch, so that one copy takes it to a device.

use super::block::Block;
use super::layout::{AxisTables, Budget};
use std::ops::Range;

/// Every section starts on a multiple of this: a cache line, and more than any device asks for.
const ALIGNMENT_BYTES: usize = 64;
/// Samples and mel values alike.
const VALUE_BYTES: usize = 2;

/// What the cache holds of the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundKind {
    /// 16-bit samples; frame `t` is centred on sample `t * hop`.
    Pcm,
    /// Log-mel frames in half precision, `[frames, n_mels]`, 0 in gaps.
    Mel { n_mels: usize },
}

/// Where each table of a batch lies in its block. One layout serves all batches of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    pub budget: Budget,
    pub kind: SoundKind,
    pub hop_samples: usize,
    /// `[frames * hop]` samples or `[frames, n_mels]` mel values.
    pub sound: Section,
    /// All i32 tables, one after the other.
    pub tables: Section,
    /// Ranges of elements inside `tables`.
    pub tokens: Range<usize>,
    pub text: AxisTables,
    pub frames: AxisTables,
    pub languages: Range<usize>,
    /// Frames of each utterance's sound as the cache has it; `frames.lens` differs where its speed is changed.
    pub source_lens: Range<usize>,
    /// Packed token of each frame, 0 in gaps; empty where durations are not known.
    pub token_of_frame: Range<usize>,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub start_bytes: usize,
    pub bytes: usize,
}

impl Section {
    pub fn range(&self) -> Range<usize> {
        self.start_bytes..self.start_bytes + self.bytes
    }
}

impl BlockLayout {
    /// `aligned`: durations are known.
    pub fn new(budget: &Budget, kind: SoundKind, hop_samples: usize, aligned: bool) -> Self {
        let Budget { frames, tokens, utterances, longest_frames, longest_tokens, .. } = *budget;
        let text = AxisTables::new(tokens, tokens, utterances, longest_tokens);
        let frame_tables = AxisTables::new(text.lens.end, frames, utterances, longest_frames);
        let languages = frame_tables.lens.end..frame_tables.lens.end + utterances;
        let source_lens = languages.end..languages.end + utterances;
        let token_of_frame = source_lens.end..source_lens.end + if aligned { frames } else { 0 };
        let frame_bytes = frame_bytes(kind, hop_samples);
        let mut bytes = 0;
        let [sound, tables] = [frames * frame_bytes, token_of_frame.end * size_of::<i32>()].map(|len| {
            let start_bytes = bytes;
            bytes = (start_bytes + len).next_multiple_of(ALIGNMENT_BYTES);
            Section { start_bytes, bytes: len }
        });
        BlockLayout {
            budget: *budget,
            kind,
            hop_samples,
            sound,
            tables,
            tokens: 0..tokens,
            text,
            frames: frame_tables,
            languages,
            source_lens,
            token_of_frame,
            bytes,
        }
    }

    /// What one frame of sound takes.
    pub fn frame_bytes(&self) -> usize {
        frame_bytes(self.kind, self.hop_samples)
    }

    /// All tables of a batch.
    pub fn tables<'a>(&self, block: &'a dyn Block) -> &'a [i32] {
        bytemuck::cast_slice(&block.bytes()[self.tables.range()])
    }

    /// The two sections, to be written; whatever lies behind each is set to zero.
    pub(super) fn split<'a>(&self, bytes: &'a mut [u8]) -> (&'a mut [u8], &'a mut [i32]) {
        let bytes = &mut bytes[..self.bytes];
        let (sound, tables) = bytes.split_at_mut(self.tables.start_bytes);
        let [sound, tables] = [(sound, self.sound), (tables, self.tables)].map(|(bytes, section)| {
            let (used, between) = bytes.split_at_mut(section.bytes);
            between.fill(0);
            used
        });
        (sound, bytemuck::cast_slice_mut(tables))
    }
}

fn frame_bytes(kind: SoundKind, hop_samples: usize) -> usize {
    VALUE_BYTES
        * match kind {
            SoundKind::Pcm => hop_samples,
            SoundKind::Mel { n_mels } => n_mels,
        }
}
