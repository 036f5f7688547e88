"""Monotonic alignment search as a Triton kernel: one program for each utterance, frames one after another."""
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(scores, best, advanced, path, token_lens, frame_lens, most_frames, most_tokens, WIDTH: tl.constexpr):
    b = tl.program_id(0)
    tokens, frames = tl.load(token_lens + b), tl.load(frame_lens + b)
    scores += b.to(tl.int64) * most_frames * most_tokens
    advanced += b.to(tl.int64) * most_frames * most_tokens
    path += b.to(tl.int64) * most_frames
    best += b * 2 * (WIDTH + 1)
    token = tl.arange(0, WIDTH)
    inside = token < tokens
    # Two rows in turn; the cell before the first token stays minus infinity.
    tl.store(best + 1 + token, tl.where(token == 0, tl.load(scores), float("-inf")))
    tl.store(best, float("-inf"))
    tl.store(best + WIDTH + 1, float("-inf"))
    tl.debug_barrier()
    for frame in range(1, frames):
        before = best + ((frame - 1) % 2) * (WIDTH + 1)
        stay, step = tl.load(before + 1 + token), tl.load(before + token)
        advance = step > stay
        score = tl.load(scores + frame * most_tokens + token, mask=inside, other=0.0)
        tl.store(best + (frame % 2) * (WIDTH + 1) + 1 + token, score + tl.where(advance, step, stay))
        tl.store(advanced + frame * most_tokens + token, advance.to(tl.int8), mask=inside)
        tl.debug_barrier()
    at = tokens - 1
    for back in range(0, frames):
        frame = frames - 1 - back
        tl.store(path + frame, at.to(tl.int64))
        at -= tl.where(at > 0, tl.load(advanced + frame * most_tokens + at).to(tl.int32), 0)


def search(scores, token_lens, frame_lens):
    """`scores`: [batch, frames, tokens] -> token of each frame, [batch, frames]."""
    (utterances, frames, tokens), device = scores.shape, scores.device
    width = triton.next_power_of_2(tokens)
    best = torch.empty(utterances, 2 * (width + 1), device=device)
    advanced = torch.zeros(utterances, frames, tokens, dtype=torch.int8, device=device)
    path = torch.zeros(utterances, frames, dtype=torch.int64, device=device)
    kernel[(utterances,)](scores, best, advanced, path, token_lens, frame_lens, frames, tokens, WIDTH=width)
    return path
