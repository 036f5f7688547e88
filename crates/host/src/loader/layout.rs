//! Where utterances lie in a batch. Packed: end to end with a gap that convolutions and STFT windows may read as
//! silence. Padded: each in a slot of fixed size. Both are one list of spans on one axis, so the model knows only one form.

use std::ops::Range;

use super::packer;
pub use crate::config::GAP;

/// The fixed sizes of every batch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub frames: usize,
    pub tokens: usize,
    pub utterances: usize,
    /// Longest utterance of the run; a bound that attention kernels need on the host.
    pub longest_frames: usize,
    pub longest_tokens: usize,
    /// In the padded form, every utterance starts at a multiple of the longest lengths.
    pub padded: bool,
}

/// Length of one clip on both axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    pub frames: usize,
    pub tokens: usize,
}

/// What each clip takes of a batch, in eight bytes a clip.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    /// Frames and tokens of each, as recorded.
    own: Vec<[u32; 2]>,
    /// Clips may be spoken slower by this share.
    speed: f64,
}

impl Lengths {
    pub(super) fn new(clips: usize, speed: f64) -> Self {
        Lengths { own: Vec::with_capacity(clips), speed }
    }

    pub(super) fn push(&mut self, length: Length) {
        self.own.push([length.frames as u32, length.tokens as u32]);
    }

    pub(super) fn append(&mut self, other: Lengths) {
        self.own.extend(other.own);
    }

    pub(super) fn shrink(&mut self) {
        self.own.shrink_to_fit();
    }

    pub fn len(&self) -> usize {
        self.own.len()
    }

    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Length of a clip as it was recorded.
    pub fn own(&self, clip: usize) -> Length {
        let [frames, tokens] = self.own[clip].map(|length| length as usize);
        Length { frames, tokens }
    }

    /// What a clip takes of a batch at its slowest.
    pub fn get(&self, clip: usize) -> Length {
        let own = self.own(clip);
        if self.speed == 0.0 {
            return own;
        }
        Length { frames: (own.frames as f64 / (1.0 - self.speed)).ceil() as usize, ..own }
    }

    pub fn iter(&self) -> impl Iterator<Item = Length> + Clone {
        (0..self.len()).map(|clip| self.get(clip))
    }
}

impl FromIterator<Length> for Lengths {
    fn from_iter<T: IntoIterator<Item = Length>>(lengths: T) -> Self {
        let mut all = Lengths::default();
        lengths.into_iter().for_each(|length| all.push(length));
        all
    }
}

/// Stretch of one axis that belongs to one utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    pub len: usize,
}

impl Span {
    pub fn end(&self) -> usize {
        self.start + self.len
    }

    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.end()
    }
}

impl Budget {
    /// Packed: room for `batch_size` utterances of mean length, and at least for the longest one.
    pub fn packed(lengths: &Lengths, batch_size: usize) -> Self {
        Self::packed_for(&[lengths], batch_size)
    }

    /// Packed for several sets that share their batches' sizes.
    pub fn packed_for(sets: &[&Lengths], batch_size: usize) -> Self {
        Self::of_frames_for(sets, batch_size * (mean_and_longest(sets).0.frames + GAP))
    }

    /// Packed: room for so many frames, and at least for the longest utterance.
    pub fn of_frames(lengths: &Lengths, frames: usize) -> Self {
        Self::of_frames_for(&[lengths], frames)
    }

    /// Packed for several sets that share their batches' sizes: those that the first of them fills.
    pub fn of_frames_for(sets: &[&Lengths], frames: usize) -> Self {
        let (mean, longest) = mean_and_longest(sets);
        let clips: usize = sets.iter().map(|set| set.len()).sum();
        // More than the corpus has would be padding and nothing else.
        let utterances = frames.div_ceil(mean.frames + GAP).min(clips.max(1));
        let loose = Budget {
            frames: room(frames.min(utterances * (mean.frames + GAP)), longest.frames),
            // Frames are what fills a batch; an eighth more text keeps it that way.
            tokens: room(utterances * (mean.tokens * 9 / 8 + 1 + GAP), longest.tokens),
            // Many short clips in one batch: half as many again covers it, the packer respects the rest.
            utterances: (utterances * 3).div_ceil(2),
            longest_frames: longest.frames,
            longest_tokens: longest.tokens,
            padded: false,
        };
        packer::fitted(loose, sets[0])
    }

    /// The same with room for others; never for less than the longest utterance.
    pub(super) fn with_room(self, frames: usize, tokens: usize) -> Self {
        let (frames, tokens) = (room(frames, self.longest_frames), room(tokens, self.longest_tokens));
        Budget { frames, tokens, ..self }
    }

    /// Why a batch has not the frames that were asked for.
    pub fn why_not(&self, frames: usize) -> String {
        let why = if frames > self.frames {
            "which an epoch fills"
        } else if self.frames < self.longest_frames + GAP + 64 {
            "the longest clip needs more"
        } else {
            "rounded up to a multiple of 64"
        };
        format!("a batch has {}, {why}", self.frames)
    }

    /// Padded: `batch_size` slots of fixed size.
    pub fn padded(batch_size: usize, max: Length) -> Self {
        Budget {
            frames: batch_size * even(max.frames + GAP),
            tokens: batch_size * (max.tokens + GAP),
            utterances: batch_size,
            longest_frames: max.frames,
            longest_tokens: max.tokens,
            padded: true,
        }
    }

    /// What one clip takes of the budget, its gap included. Clips start at even frames: the decoder pairs them.
    pub fn cost(&self, length: Length) -> Length {
        let length =
            if self.padded { Length { frames: self.longest_frames, tokens: self.longest_tokens } } else { length };
        Length { frames: even(length.frames + GAP), tokens: length.tokens + GAP }
    }

    /// Lays clips out in the given order: (token spans, frame spans).
    pub fn place(&self, lengths: &[Length]) -> (Vec<Span>, Vec<Span>) {
        let mut at = Length { frames: 0, tokens: 0 };
        let mut spans = (Vec::new(), Vec::new());
        for &length in lengths {
            spans.0.push(Span { start: at.tokens, len: length.tokens });
            spans.1.push(Span { start: at.frames, len: length.frames });
            let cost = self.cost(length);
            at = Length { frames: at.frames + cost.frames, tokens: at.tokens + cost.tokens };
        }
        assert!(at.frames <= self.frames && at.tokens <= self.tokens, "the packer overfilled a batch");
        spans
    }
}

/// Room for so many, and at least for the longest utterance's; a whole number of tiles.
fn room(wanted: usize, longest: usize) -> usize {
    wanted.max(longest + GAP).next_multiple_of(64)
}

fn even(frames: usize) -> usize {
    frames.next_multiple_of(2)
}

/// The most frames and the most tokens that any has; one of each where there is none.
pub fn longest(sets: &[&Lengths]) -> Length {
    mean_and_longest(sets).1
}

/// In one go through all lengths.
fn mean_and_longest(sets: &[&Lengths]) -> (Length, Length) {
    let clips: usize = sets.iter().map(|set| set.len()).sum();
    let (mut sum, mut longest) = ([0, 0], [0, 0]);
    for Length { frames, tokens } in sets.iter().flat_map(|set| set.iter()) {
        sum = [sum[0] + frames, sum[1] + tokens];
        longest = [longest[0].max(frames), longest[1].max(tokens)];
    }
    let [frames, tokens] = sum.map(|sum: usize| sum.div_ceil(clips.max(1)));
    let least = usize::from(clips == 0);
    let longest = Length { frames: longest[0].max(least), tokens: longest[1].max(least) };
    (Length { frames, tokens }, longest)
}

/// One axis of a batch as arrays of fixed size, ready for tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Position inside the utterance; 0 in gaps.
    pub position: Vec<i32>,
    /// Which utterance; `capacity` in gaps.
    pub owner: Vec<i32>,
    /// Borders of attention segments: utterances and the gaps between them in turn, then the unused end in pieces.
    pub cu_seqlens: Vec<i32>,
    /// No segment is longer.
    pub longest_segment: usize,
    /// First index and length of each utterance; unused ones are empty.
    pub starts: Vec<i32>,
    pub lens: Vec<i32>,
}

impl Axis {
    /// `longest`: no utterance of the run is longer. Sizes depend on the numbers alone, never on the spans.
    pub fn new(spans: &[Span], total: usize, capacity: usize, longest: usize) -> Self {
        let tables = AxisTables::new(0, total, capacity, longest);
        let mut all = vec![0; tables.lens.end];
        tables.fill(&mut all, spans);
        tables.read(&all)
    }
}

/// Where the arrays of an axis lie among the tables of a batch, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisTables {
    pub position: Range<usize>,
    pub owner: Range<usize>,
    pub cu_seqlens: Range<usize>,
    pub starts: Range<usize>,
    pub lens: Range<usize>,
    /// No attention segment is longer.
    pub longest_segment: usize,
}

impl AxisTables {
    pub fn new(start: usize, total: usize, capacity: usize, longest: usize) -> Self {
        let longest_segment = longest + GAP;
        let segments = 2 * capacity + 1 + total.div_ceil(longest_segment);
        let mut end = start;
        let [position, owner, cu_seqlens, starts, lens] =
            [total, total, segments, capacity, capacity].map(|len| following(&mut end, len));
        AxisTables { position, owner, cu_seqlens, starts, lens, longest_segment }
    }

    /// Writes every element of the five arrays.
    pub fn fill(&self, tables: &mut [i32], spans: &[Span]) {
        let (total, capacity) = (self.position.len(), self.starts.len());
        tables[self.position.clone()].fill(0);
        tables[self.owner.clone()].fill(capacity as i32);
        tables[self.starts.start..self.lens.end].fill(0);
        for (index, span) in spans.iter().enumerate() {
            let stretch = |array: &Range<usize>| array.start + span.start..array.start + span.end();
            for (offset, position) in tables[stretch(&self.position)].iter_mut().enumerate() {
                *position = offset as i32;
            }
            tables[stretch(&self.owner)].fill(index as i32);
            tables[self.starts.start + index] = span.start as i32;
            tables[self.lens.start + index] = span.len as i32;
        }
        let used = spans.last().map_or(0, Span::end);
        // One long segment would cost the square of its length for nothing.
        let rest = (used..total).step_by(self.longest_segment).skip(1);
        let borders = [0].into_iter().chain(spans.iter().flat_map(|span| [span.start, span.end()])).chain(rest);
        let borders = borders.chain(std::iter::repeat(total));
        for (into, border) in tables[self.cu_seqlens.clone()].iter_mut().zip(borders) {
            *into = border as i32;
        }
    }

    /// The arrays, out of all tables of a batch.
    pub fn read(&self, tables: &[i32]) -> Axis {
        let array = |range: &Range<usize>| tables[range.clone()].to_vec();
        Axis {
            position: array(&self.position),
            owner: array(&self.owner),
            cu_seqlens: array(&self.cu_seqlens),
            longest_segment: self.longest_segment,
            starts: array(&self.starts),
            lens: array(&self.lens),
        }
    }
}

/// The next `len` elements behind `end`.
fn following(end: &mut usize, len: usize) -> Range<usize> {
    *end += len;
    *end - len..*end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_utterances_and_gaps_in_turn() {
        let axis = Axis::new(&[Span { start: 0, len: 3 }, Span { start: 5, len: 2 }], 9, 3, 3);
        assert_eq!(axis.cu_seqlens, [0, 0, 3, 5, 7, 9, 9, 9, 9]);
        assert_eq!(axis.owner, [0, 0, 0, 3, 3, 1, 1, 3, 3]);
        assert_eq!(axis.position, [0, 1, 2, 0, 0, 0, 1, 0, 0]);
        assert_eq!((axis.starts, axis.lens), (vec![0, 5, 0], vec![3, 2, 0]));
    }

    #[test]
    fn an_unused_end_is_cut_into_segments_that_are_not_too_long() {
        let axis = Axis::new(&[Span { start: 0, len: 2 }], 30, 2, 4);
        assert_eq!(axis.cu_seqlens, [0, 0, 2, 10, 18, 26, 30, 30, 30]);
        assert_eq!(axis.longest_segment, 8);
    }

    #[test]
    fn padded_slots_start_at_fixed_places() {
        let budget = Budget::padded(2, Length { frames: 10, tokens: 5 });
        let (text, frames) = budget.place(&[Length { frames: 3, tokens: 2 }, Length { frames: 10, tokens: 5 }]);
        assert_eq!(text[1], Span { start: 5 + GAP, len: 5 });
        assert_eq!(frames[1], Span { start: 10 + GAP, len: 10 });
        assert_eq!(budget.frames, 2 * (10 + GAP));
    }
}
