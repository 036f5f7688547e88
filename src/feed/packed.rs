//! One axis of a packed batch as tensors: where utterances lie, for attention, convolutions and means.

use crate::loader::Axis;
use tch::{Device, Kind, Tensor};

pub struct Packed {
    /// `[len]`, position inside the utterance, for rotary embeddings.
    pub position: Tensor,
    /// `[len]`, utterance of each index; `capacity` in gaps.
    pub owner: Tensor,
    /// `[len, 1]`, 1 inside utterances and 0 in gaps, f32.
    pub mask: Tensor,
    /// `[segments + 1]`, i32: borders of attention segments, utterances and gaps in turn.
    pub cu_seqlens: Tensor,
    /// `[capacity]` each.
    pub starts: Tensor,
    pub lens: Tensor,
    /// No segment is longer.
    pub longest_segment: i64,
}

impl Packed {
    /// `moved` takes a host tensor to the device.
    pub fn new(axis: &Axis, moved: impl Fn(Tensor) -> Tensor) -> Self {
        let ints = |values: &[i64]| moved(Tensor::from_slice(values));
        let owner = ints(&axis.owner);
        Packed {
            position: ints(&axis.position),
            mask: owner.lt(axis.starts.len() as i64).to_kind(Kind::Float).unsqueeze(1),
            owner,
            cu_seqlens: moved(Tensor::from_slice(&axis.cu_seqlens)),
            starts: ints(&axis.starts),
            lens: ints(&axis.lens),
            longest_segment: axis.longest_segment as i64,
        }
    }

    pub fn len(&self) -> i64 {
        self.owner.size()[0]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn capacity(&self) -> i64 {
        self.starts.size()[0]
    }

    /// Sum over utterances' elements divided by their number: `values` is `[len, channels]`, f32.
    pub fn mean(&self, values: &Tensor) -> Tensor {
        let channels = values.size()[1] as f64;
        (values * &self.mask).sum(Kind::Float) / (self.mask.sum(Kind::Float).clamp_min(1.0) * channels)
    }

    /// The tensors that differ between batches, for copies between devices.
    pub fn tensors(&self) -> [&Tensor; 6] {
        [&self.position, &self.owner, &self.mask, &self.cu_seqlens, &self.starts, &self.lens]
    }

    /// The same values in memory of their own.
    pub fn copy_to(&self, device: Device) -> Packed {
        let copy = |tensor: &Tensor| tensor.to_device_(device, tensor.kind(), false, true);
        Packed {
            position: copy(&self.position),
            owner: copy(&self.owner),
            mask: copy(&self.mask),
            cu_seqlens: copy(&self.cu_seqlens),
            starts: copy(&self.starts),
            lens: copy(&self.lens),
            longest_segment: self.longest_segment,
        }
    }
}
