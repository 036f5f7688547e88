//! One axis of a packed batch as tensors: where utterances lie, for attention, convolutions and means.

#[cfg(test)]
use host::loader::Axis;
use host::loader::AxisTables;
use std::ops::Range;
use tch::{Kind, Tensor};

/// Utterances along one packed axis. Whole numbers are i32.
pub struct Packed {
    /// `[len]`, position inside the utterance, for rotary embeddings.
    pub position: Tensor,
    /// `[len]`, utterance of each index; `capacity` in gaps.
    pub owner: Tensor,
    /// `[len, 1]`, 1 inside utterances and 0 in gaps, f32.
    pub mask: Tensor,
    /// `[segments + 1]`: borders of attention segments, utterances and gaps in turn.
    pub cu_seqlens: Tensor,
    /// `[capacity]` each.
    pub starts: Tensor,
    pub lens: Tensor,
    /// Bound on the length of a segment.
    pub longest_segment: i64,
}

impl Packed {
    /// Tables of an axis as tensors; `moved` takes a host tensor to the device.
    #[cfg(test)]
    pub fn new(axis: &Axis, moved: impl Fn(Tensor) -> Tensor) -> Self {
        let ints = |values: &[i32]| moved(Tensor::from_slice(values));
        let owner = ints(&axis.owner);
        Packed {
            position: ints(&axis.position),
            mask: mask(&owner, axis.starts.len() as i64),
            owner,
            cu_seqlens: ints(&axis.cu_seqlens),
            starts: ints(&axis.starts),
            lens: ints(&axis.lens),
            longest_segment: axis.longest_segment as i64,
        }
    }

    /// Views of a batch's tables; only the mask has memory of its own.
    pub(crate) fn of_tables(tables: &Tensor, place: &AxisTables, longest_segment: usize) -> Self {
        let part = |range: &Range<usize>| tables.narrow(0, range.start as i64, range.len() as i64);
        let (owner, starts) = (part(&place.owner), part(&place.starts));
        Packed {
            position: part(&place.position),
            mask: mask(&owner, starts.size()[0]),
            owner,
            cu_seqlens: part(&place.cu_seqlens),
            starts,
            lens: part(&place.lens),
            longest_segment: longest_segment as i64,
        }
    }

    pub fn len(&self) -> i64 {
        self.owner.size()[0]
    }

    pub fn capacity(&self) -> i64 {
        self.starts.size()[0]
    }
}

fn mask(owner: &Tensor, capacity: i64) -> Tensor {
    owner.lt(capacity).to_kind(Kind::Float).unsqueeze(1)
}
