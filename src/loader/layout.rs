//! Where utterances lie in a batch. Packed: end to end with a gap that convolutions and STFT windows may read as
//! silence. Padded: each in a slot of fixed size. Both are one list of spans on one axis, so the model knows only one form.

/// Frames or tokens between neighbours. Two frames are what an STFT window reaches beyond a clip (`n_fft / 2` is two
/// hops); three is the reach of the widest convolution, kernel 7.
pub const GAP: usize = 4;

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
    pub fn packed(lengths: &[Length], batch_size: usize) -> Self {
        // More than the corpus has would be padding and nothing else.
        let batch_size = batch_size.min(lengths.len().max(1));
        let mean = |of: fn(&Length) -> usize| lengths.iter().map(of).sum::<usize>().div_ceil(lengths.len().max(1));
        let longest = longest(lengths);
        let room = |mean: usize, most: usize| (batch_size * (mean + GAP)).max(most + GAP).next_multiple_of(64);
        Budget {
            frames: room(mean(|l| l.frames), longest.frames),
            // Frames are what fills a batch; an eighth more text keeps it that way.
            tokens: room(mean(|l| l.tokens) * 9 / 8 + 1, longest.tokens),
            // Many short clips in one batch: twice the mean count covers it, the packer respects the rest.
            utterances: batch_size * 2,
            longest_frames: longest.frames,
            longest_tokens: longest.tokens,
            padded: false,
        }
    }

    /// Padded: `batch_size` slots of fixed size.
    pub fn padded(batch_size: usize, max: Length) -> Self {
        Budget {
            frames: batch_size * (max.frames + GAP),
            tokens: batch_size * (max.tokens + GAP),
            utterances: batch_size,
            longest_frames: max.frames,
            longest_tokens: max.tokens,
            padded: true,
        }
    }

    /// What one clip takes of the budget, its gap included.
    pub fn cost(&self, length: Length) -> Length {
        let length =
            if self.padded { Length { frames: self.longest_frames, tokens: self.longest_tokens } } else { length };
        Length { frames: length.frames + GAP, tokens: length.tokens + GAP }
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

fn longest(lengths: &[Length]) -> Length {
    Length {
        frames: lengths.iter().map(|l| l.frames).max().unwrap_or(1),
        tokens: lengths.iter().map(|l| l.tokens).max().unwrap_or(1),
    }
}

/// One axis of a batch as arrays of fixed size, ready for tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Position inside the utterance; 0 in gaps.
    pub position: Vec<i64>,
    /// Which utterance; `capacity` in gaps.
    pub owner: Vec<i64>,
    /// Borders of attention segments: utterances and the gaps between them in turn, then the unused end in pieces.
    pub cu_seqlens: Vec<i32>,
    /// No segment is longer.
    pub longest_segment: usize,
    /// First index and length of each utterance; unused ones are empty.
    pub starts: Vec<i64>,
    pub lens: Vec<i64>,
}

impl Axis {
    /// `longest`: no utterance of the run is longer. Sizes depend on the numbers alone, never on the spans.
    pub fn new(spans: &[Span], total: usize, capacity: usize, longest: usize) -> Self {
        let longest_segment = longest + GAP;
        let mut axis = Axis {
            position: vec![0; total],
            owner: vec![capacity as i64; total],
            cu_seqlens: vec![0],
            longest_segment,
            starts: vec![0; capacity],
            lens: vec![0; capacity],
        };
        for (index, span) in spans.iter().enumerate() {
            for (offset, at) in span.range().enumerate() {
                axis.position[at] = offset as i64;
                axis.owner[at] = index as i64;
            }
            axis.cu_seqlens.extend([span.start as i32, span.end() as i32]);
            (axis.starts[index], axis.lens[index]) = (span.start as i64, span.len as i64);
        }
        // One long segment would cost the square of its length for nothing.
        let used = spans.last().map_or(0, Span::end);
        axis.cu_seqlens.extend((used..total).step_by(longest_segment).skip(1).map(|border| border as i32));
        axis.cu_seqlens.resize(2 * capacity + 1 + total.div_ceil(longest_segment), total as i32);
        axis
    }
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
