//! One axis of a batch as layers use it, made once for a forward pass; and the axes that follow from it: a half-rate one,
//! and several copies end to end. All of it stays on the device, in shapes that never change.

use super::layers::FIXED;
use crate::feed::Packed;
use tch::{Kind, Tensor};
use torchx::fused::Spans;
use torchx::{Arg, Kernel};

/// Tables of an axis on a GPU, each group in one launch.
const SOURCE: &str = include_str!("track.cu");

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
        if seqs.mask.device().is_cuda() && matches!(kind, Kind::Float | Kind::BFloat16) {
            let (mask, one_hot) = mask_and_owners(seqs, &spans.owner, kind).expect(FIXED);
            return Track { seqs, mask, owners: Owners { one_hot }, spans };
        }
        Track { seqs, mask: seqs.mask.to_kind(kind), owners: Owners::new(seqs, kind), spans }
    }
}

/// What `Track` holds in the kind of the activations, on a GPU.
fn mask_and_owners(seqs: &Packed, owner: &Tensor, kind: Kind) -> Result<(Tensor, Tensor), torchx::Error> {
    let (rows, owners, device) = (seqs.len(), Owners::columns(seqs), seqs.mask.device());
    let (mask, one_hot) = (Tensor::empty([rows, 1], (kind, device)), Tensor::empty([rows, owners], (kind, device)));
    let given = seqs.mask.contiguous();
    let sizes = [rows, owners, i64::from(kind == Kind::BFloat16)].map(|size| Arg::I32(size as i32));
    let args = [&[owner, &given, &mask, &one_hot].map(Arg::Tensor)[..], &sizes].concat();
    launch("track", rows * owners, &mask, &args)?;
    Ok((mask, one_hot))
}

/// Cosines and sines of the axis' positions: `[len, half]` each, f32, on a GPU.
pub fn rotary_tables(seqs: &Packed, half: i64, slope: f64) -> Result<[Tensor; 2], torchx::Error> {
    let (rows, position) = (seqs.len(), seqs.position.to_kind(Kind::Int).contiguous());
    let [cos, sin] = [(); 2].map(|()| Tensor::empty([rows, half], (Kind::Float, position.device())));
    let tables = [&position, &cos, &sin].map(Arg::Tensor);
    let args = [&tables[..], &[Arg::I32(rows as i32), Arg::I32(half as i32), Arg::F32(slope as f32)]].concat();
    launch("rotary", rows * half, &position, &args)?;
    Ok([cos, sin])
}

/// One thread for each of so many things.
fn launch(name: &'static str, count: i64, like: &Tensor, args: &[Arg]) -> Result<(), torchx::Error> {
    Kernel::shared(SOURCE, name, like.device())?.launch([(count as u32).div_ceil(256), 1, 1], [256, 1, 1], 0, args)
}

/// Which utterance each index belongs to.
pub struct Owners {
    /// `[len, columns]`, 1 at the owner; a gap's is behind the last utterance.
    one_hot: Tensor,
}

impl Owners {
    fn new(seqs: &Packed, kind: Kind) -> Self {
        let rows = Tensor::arange(Owners::columns(seqs), (seqs.owner.kind(), seqs.owner.device()));
        Owners { one_hot: seqs.owner.unsqueeze(1).eq_tensor(&rows).to_kind(kind) }
    }

    /// One for each utterance and one for gaps, filled up to what tensor cores take: products of 33 columns are several times
    /// slower than those of 40.
    fn columns(seqs: &Packed) -> i64 {
        (seqs.capacity() + 1 + 7) / 8 * 8
    }

    /// Gives every index its utterance's row of `table` (`[capacity, channels]`), and zeros in gaps.
    ///
    /// A product, because its gradient is one too: sums in a fixed order. That of a lookup is thousands of atomic
    /// additions to a few dozen rows, slower and never twice the same.
    pub fn spread(&self, table: &Tensor) -> Tensor {
        let missing = self.one_hot.size()[1] - table.size()[0];
        self.one_hot.matmul(&table.constant_pad_nd([0, 0, 0, missing]))
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
    if seqs.owner.device().is_cuda() && seqs.owner.kind() == Kind::Int {
        return halved(seqs).expect(FIXED);
    }
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

/// The same on a GPU, in one launch.
fn halved(seqs: &Packed) -> Result<Packed, torchx::Error> {
    let given = [&seqs.position, &seqs.owner, &seqs.mask, &seqs.cu_seqlens, &seqs.starts, &seqs.lens];
    let given = given.map(Tensor::contiguous);
    let (rows, borders, capacity) = (seqs.len(), seqs.cu_seqlens.size()[0], seqs.capacity());
    let pairs = (rows + 1) / 2;
    let empty = |size: &[i64], kind| Tensor::empty(size, (kind, seqs.owner.device()));
    let half = Packed {
        position: empty(&[pairs], Kind::Int),
        owner: empty(&[pairs], Kind::Int),
        mask: empty(&[pairs, 1], Kind::Float),
        cu_seqlens: empty(&[borders], Kind::Int),
        starts: empty(&[capacity], Kind::Int),
        lens: empty(&[capacity], Kind::Int),
        longest_segment: (seqs.longest_segment + 1) / 2,
    };
    let made = [&half.position, &half.owner, &half.mask, &half.cu_seqlens, &half.starts, &half.lens].map(Arg::Tensor);
    let sizes = [rows, borders, capacity].map(|size| Arg::I32(size as i32));
    let args = [&given.each_ref().map(Arg::Tensor)[..], &made, &sizes].concat();
    launch("halve", pairs.max(borders).max(capacity), &half.owner, &args)?;
    Ok(half)
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
