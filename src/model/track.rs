//! One axis of a batch as layers use it, made once for a forward pass; and the axes that follow from it: a half-rate one,
//! and several copies end to end. All of it stays on the device, in shapes that never change.

use crate::feed::Packed;
use tch::{Kind, Tensor};
use torchx::fused::Spans;

pub struct Track<'a> {
    pub seqs: &'a Packed,
    /// `[len, 1]`, in the kind of the activations.
    pub mask: Tensor,
    pub owners: Owners,
    pub spans: Spans,
}

impl<'a> Track<'a> {
    pub fn new(seqs: &'a Packed, kind: Kind) -> Self {
        let spans = Spans::new(&seqs.owner, &seqs.starts, &seqs.lens).expect("three lists");
        Track { seqs, mask: seqs.mask.to_kind(kind), owners: Owners::new(seqs, kind), spans }
    }
}

/// Which utterance each index belongs to; in gaps, the row behind the last utterance's.
pub struct Owners {
    /// `[len, capacity + 1]`, 1 at the owner.
    one_hot: Tensor,
}

impl Owners {
    fn new(seqs: &Packed, kind: Kind) -> Self {
        let rows = Tensor::arange(seqs.capacity() + 1, (seqs.owner.kind(), seqs.owner.device()));
        Owners { one_hot: seqs.owner.unsqueeze(1).eq_tensor(&rows).to_kind(kind) }
    }

    /// Gives every index its utterance's row of `table` (`[capacity + 1, channels]`).
    ///
    /// A product, because its gradient is one too: sums in a fixed order. That of a lookup is thousands of atomic
    /// additions to a few dozen rows, slower and never twice the same.
    pub fn spread(&self, table: &Tensor) -> Tensor {
        self.one_hot.matmul(table)
    }
}

/// A row of zeros behind the last: what gaps own.
pub fn with_gap_row(table: &Tensor) -> Tensor {
    table.constant_pad_nd([0, 0, 0, 1])
}

/// The axis of pairs. Utterances start at even places, so a pair never has two owners; a last odd frame is one of half.
pub fn half(seqs: &Packed) -> Packed {
    let evens = |tensor: &Tensor| tensor.slice(0, 0, None, 2);
    let up = |tensor: &Tensor| (tensor + 1).floor_divide_scalar(2);
    Packed {
        position: evens(&seqs.position).floor_divide_scalar(2),
        owner: evens(&seqs.owner),
        mask: evens(&seqs.mask),
        cu_seqlens: up(&seqs.cu_seqlens),
        starts: up(&seqs.starts),
        lens: up(&seqs.lens),
        longest_segment: (seqs.longest_segment + 1) / 2,
    }
}

/// The axis `copies` times end to end; utterance `i` of copy `c` is number `c * capacity + i`.
pub fn repeat(seqs: &Packed, copies: i64) -> Packed {
    if copies == 1 {
        return same(seqs);
    }
    let again = |tensor: &Tensor| {
        let ones = vec![1; tensor.dim() - 1];
        tensor.repeat([&[copies], ones.as_slice()].concat())
    };
    let (len, capacity) = (seqs.len(), seqs.capacity());
    // Gaps of all copies own the one row behind the last utterance of the last copy.
    let owned = |copy: i64| (&seqs.owner + copy * capacity).where_self(&seqs.owner.lt(capacity), &last(seqs, copies));
    let borders = |copy: i64| seqs.cu_seqlens.slice(0, i64::from(copy > 0), None, 1) + copy * len;
    let each = |part: &dyn Fn(i64) -> Tensor| Tensor::cat(&(0..copies).map(part).collect::<Vec<_>>(), 0);
    Packed {
        position: again(&seqs.position),
        owner: each(&owned),
        mask: again(&seqs.mask),
        cu_seqlens: each(&borders),
        starts: each(&|copy| &seqs.starts + copy * len),
        lens: again(&seqs.lens),
        longest_segment: seqs.longest_segment,
    }
}

fn last(seqs: &Packed, copies: i64) -> Tensor {
    Tensor::full([1], copies * seqs.capacity(), (seqs.owner.kind(), seqs.owner.device()))
}

fn same(seqs: &Packed) -> Packed {
    Packed {
        position: seqs.position.shallow_clone(),
        owner: seqs.owner.shallow_clone(),
        mask: seqs.mask.shallow_clone(),
        cu_seqlens: seqs.cu_seqlens.shallow_clone(),
        starts: seqs.starts.shallow_clone(),
        lens: seqs.lens.shallow_clone(),
        longest_segment: seqs.longest_segment,
    }
}
