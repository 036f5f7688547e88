"""Monotonic alignment search as two Triton kernels: tiles of scores, then one program for each utterance, frames one after
another. On rows of either form of a batch: an utterance is where it starts and how long it is. Can be captured."""
import torch
import triton
import triton.language as tl

TILE = 64


@triton.jit
def score(mean, mel, scores, token_starts, token_lens, frame_starts, frame_lens, mean_stride, stride,
          CHANNELS: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr):
    """A frame under a token's mean, up to a term that is the same on every path."""
    b = tl.program_id(2)
    tokens, frames = tl.load(token_lens + b), tl.load(frame_lens + b)
    frame, token = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.program_id(1) * TILE + tl.arange(0, TILE)
    if (tl.program_id(0) * TILE < frames) & (tl.program_id(1) * TILE < tokens):
        channel = tl.arange(0, WIDE)
        row = (tl.load(frame_starts + b) + frame).to(tl.int64)
        column = (tl.load(token_starts + b) + token).to(tl.int64)
        inside = (frame[:, None] < frames) & (channel[None] < CHANNELS)
        known = (token[:, None] < tokens) & (channel[None] < CHANNELS)
        heard = tl.load(mel + row[:, None] * CHANNELS + channel[None], mask=inside, other=0.0)
        expected = tl.load(mean + column[:, None] * mean_stride + channel[None], mask=known, other=0.0).to(tl.float32)
        found = tl.dot(heard, tl.trans(expected), input_precision="tf32x3") - 0.5 * tl.sum(expected * expected, 1)[None]
        tl.store(scores + row[:, None] * stride + token[None], found, mask=(frame[:, None] < frames) & (token[None] < tokens))


@triton.jit
def align(scores, best, advanced, path, token_starts, token_lens, frame_starts, frame_lens, stride, WIDTH: tl.constexpr):
    b = tl.program_id(0)
    tokens, frames = tl.load(token_lens + b), tl.load(frame_lens + b)
    first_token, first_frame = tl.load(token_starts + b), tl.load(frame_starts + b).to(tl.int64)
    scores += first_frame * stride
    advanced += first_frame * stride
    path += first_frame
    best += b * 2 * (WIDTH + 1)
    token = tl.arange(0, WIDTH)
    inside = token < tokens
    # Two rows in turn; the cell before the first token stays minus infinity.
    start = tl.load(scores + token, mask=inside, other=0.0)
    tl.store(best + 1 + token, tl.where(token == 0, start, float("-inf")))
    tl.store(best, float("-inf"))
    tl.store(best + WIDTH + 1, float("-inf"))
    tl.debug_barrier()
    # Each frame's scores are asked for one frame early.
    coming = tl.load(scores + stride + token, mask=inside & (frames > 1), other=0.0)
    for frame in range(1, frames):
        now = coming
        coming = tl.load(scores + (frame + 1) * stride + token, mask=inside & (frame + 1 < frames), other=0.0)
        before = best + ((frame - 1) % 2) * (WIDTH + 1)
        stay, step = tl.load(before + 1 + token), tl.load(before + token)
        advance = step > stay
        tl.store(best + (frame % 2) * (WIDTH + 1) + 1 + token, now + tl.where(advance, step, stay))
        tl.store(advanced + frame * stride + token, advance.to(tl.int8), mask=inside)
        tl.debug_barrier()
    at = tokens - 1
    for back in range(0, frames):
        frame = frames - 1 - back
        tl.store(path + frame, (first_token + at).to(tl.int64))
        at -= tl.where(at > 0, tl.load(advanced + frame * stride + at).to(tl.int32), 0)


def search(mean, batch):
    """Index of each frame's token among all rows of the text; 0 in padding and gaps."""
    mel, text, frames, device = batch.mel, batch.text, batch.frames, mean.device
    rows, utterances = mel.numel() // mel.shape[-1], len(text.lens)
    tiles = lambda axis: -(-axis.longest // TILE)
    stride, channels = tiles(text) * TILE, mel.shape[-1]
    width = triton.next_power_of_2(text.longest)
    scores = torch.empty(rows, stride, device=device)
    best = torch.empty(utterances, 2 * (width + 1), device=device)
    advanced = torch.empty(rows, stride, dtype=torch.int8, device=device)
    path = torch.zeros(rows, dtype=torch.int64, device=device)
    spans = text.starts, text.lens, frames.starts, frames.lens
    score[(tiles(frames), tiles(text), utterances)](mean, mel, scores, *spans, mean.stride(-2), stride,
                                                    CHANNELS=channels, WIDE=triton.next_power_of_2(channels), TILE=TILE)
    align[(utterances,)](scores, best, advanced, path, *spans, stride, WIDTH=width)
    return path.view(mel.shape[:-1])
