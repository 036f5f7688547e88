"""An axis of a batch, text or frames, as the layers of `model.py` use it: padded or packed. Both give the same answers:

- `mask`: 1 on what belongs to an utterance, 0 in padding and gaps; `position` inside the utterance;
- `spread`: gives every row its utterance's row of a table `[utterances, channels]`;
- `attend`: attention inside each utterance, of `[..., rows, heads, head_dim]`.

Packed is what `crates/host/src/loader/layout.rs` lays out: utterances end to end with gaps in one fixed length, and segments
for attention that are utterances and gaps in turn.
"""
import dataclasses

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

GAP = 4  # rows between neighbours
BLOCK = 128  # rows of a block of flex attention


def tensors_of(thing):
    """All tensors of nested dataclasses, in order."""
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, torch.Tensor):
            yield value
        elif dataclasses.is_dataclass(value):
            yield from tensors_of(value)


def moved(thing, device):
    """A copy with its tensors on a device."""
    def move(value):
        if isinstance(value, torch.Tensor):
            return value.to(device, copy=True)
        return moved(value, device) if dataclasses.is_dataclass(value) else value
    return dataclasses.replace(thing, **{f.name: move(getattr(thing, f.name)) for f in dataclasses.fields(thing)})


@dataclasses.dataclass
class Padded:
    """`[utterances, length, ...]`"""
    position: torch.Tensor  # [length], f32
    mask: torch.Tensor      # [utterances, length, 1], f32
    starts: torch.Tensor    # [utterances], i32: of each among all rows
    lens: torch.Tensor

    @staticmethod
    def new(lens, length):
        lens = torch.tensor(lens, dtype=torch.int32)
        mask = (torch.arange(length)[None] < lens[:, None]).float()[..., None]
        starts = torch.arange(len(lens), dtype=torch.int32) * length
        return Padded(torch.arange(length, dtype=torch.float32), mask, starts, lens)

    @property
    def longest(self):
        return self.mask.shape[1]

    def half(self):
        return Padded(self.position[::2] // 2, self.mask[:, ::2], self.starts // 2, (self.lens + 1) // 2)

    def spread(self, table):
        return table[:, None]

    def attention(self):
        mask = self.mask[:, None, None, :, 0].bool()
        def attend(q, k, v):
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        return attend


@dataclasses.dataclass
class Packed:
    """`[length, ...]`"""
    position: torch.Tensor    # [length], f32; 0 in gaps
    mask: torch.Tensor        # [length, 1], f32
    owner: torch.Tensor       # [length], i32; `capacity` in gaps
    cu_seqlens: torch.Tensor  # borders of segments, i32
    segment: torch.Tensor     # [length], i32: number of the segment; never falls
    starts: torch.Tensor      # [capacity], i32; unused utterances are empty
    lens: torch.Tensor
    longest: int              # no segment is longer
    kernel: str               # how attention is computed: a key of `ATTENTIONS`

    @staticmethod
    def new(spans, total, capacity, longest, kernel):
        """`spans`: start and length of each utterance; `longest`: no utterance of the run is longer."""
        longest += GAP
        position, owner = np.zeros(total, np.float32), np.full(total, capacity, np.int32)
        starts, lens = np.zeros(capacity, np.int32), np.zeros(capacity, np.int32)
        borders = [0]
        for i, (start, length) in enumerate(spans):
            position[start:start + length], owner[start:start + length] = np.arange(length), i
            starts[i], lens[i] = start, length
            borders += [start, start + length]
        # One long segment would cost the square of its length for nothing.
        borders += range(borders[-1] + longest, total, longest)
        segments = 2 * capacity + 1 + -(-total // longest)
        borders = np.array((borders + [total] * segments)[:segments], np.int32)
        tables = (position, (owner < capacity).astype(np.float32)[:, None], owner, borders, segment_of(borders, total), starts, lens)
        return Packed(*map(torch.from_numpy, tables), longest, kernel)

    def half(self):
        """The axis of pairs. Utterances start at even places, so that a pair never has two owners."""
        # Every segment but the last starts where an utterance does or ends, so a pair belongs to its first row's.
        up = lambda tensor: (tensor + 1) // 2
        return Packed(self.position[::2] // 2, self.mask[::2], self.owner[::2], up(self.cu_seqlens), self.segment[::2],
                      up(self.starts), up(self.lens), (self.longest + 1) // 2, self.kernel)

    def spread(self, table):
        # A row of zeros for gaps, and more of them up to a multiple of eight, which tensor cores like.
        more = 8 - len(table) % 8
        rows = torch.arange(len(table) + more, device=table.device, dtype=torch.int32)
        one_hot = (self.owner[:, None] == rows).to(table.dtype)
        return Spread.apply(F.pad(table, (0, 0, 0, more)), self.owner, one_hot)

    def attention(self):
        return ATTENTIONS[self.kernel](self)


def segment_of(borders, total):
    return (np.searchsorted(borders, np.arange(total), side="right") - 1).astype(np.int32)


class Spread(torch.autograd.Function):
    """A lookup, whose gradient is a product: atomic additions of thousands of rows to a few dozen are slower."""

    @staticmethod
    def forward(ctx, table, owner, one_hot):
        ctx.save_for_backward(one_hot)
        return table.index_select(0, owner)

    @staticmethod
    def backward(ctx, gradient):
        one_hot, = ctx.saved_tensors
        return one_hot.t() @ gradient.to(one_hot.dtype), None, None


def varlen(axis):
    from torch.nn.attention.varlen import varlen_attn
    return lambda q, k, v: varlen_attn(q, k, v, axis.cu_seqlens, axis.cu_seqlens, axis.longest, axis.longest)


def flash(axis):
    """The operator that `varlen_attn` wraps, without its wrapper."""
    def attend(q, k, v):
        borders, longest = axis.cu_seqlens, axis.longest
        return torch.ops.aten._flash_attention_forward(q, k, v, borders, borders, longest, longest, 0.0, False, False)[0]
    return attend


def flex(axis):
    blocks = document_blocks(axis.segment)
    def attend(q, k, v):
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        return flex_attention(q, k, v, block_mask=blocks)[0].transpose(0, 1)
    return attend


def document_blocks(segment):
    """The blocks that hold a segment in common. Segments are numbered in order, so first and last of a block say it all."""
    length = len(segment)
    blocks = -(-length // BLOCK)
    filled = F.pad(segment, (0, blocks * BLOCK - length), value=2**30).view(blocks, BLOCK)
    first, last = filled[:, 0], torch.where(filled == 2**30, 0, filled).amax(1)
    shared = (first[:, None] <= last[None]) & (first[None] <= last[:, None])
    whole = (first == last) & (filled[:, -1] != 2**30)  # a last block that is not full is looked at row by row
    full = shared & whole[:, None] & whole[None]
    ordered = lambda dense: (dense.sum(1).int()[None, None], dense.int().argsort(dim=1, descending=True, stable=True).int()[None, None])
    same = lambda batch, head, q, k: segment[q] == segment[k]
    return BlockMask.from_kv_blocks(*ordered(shared & ~full), *ordered(full), BLOCK_SIZE=BLOCK, mask_mod=same, seq_lengths=(length, length))


def dense(axis):
    """For a CPU: every row against every other."""
    mask = axis.segment[:, None] == axis.segment[None]
    def attend(q, k, v):
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)
    return attend


ATTENTIONS = {"varlen": varlen, "flash": flash, "flex": flex, "dense": dense}
