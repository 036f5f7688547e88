"""Batches of random utterances in both forms: the same speech padded to the longest, and packed as
`crates/host/src/loader` does it (`Budget::packed` before it is fitted to a corpus, `Budget::place`, `packer::fill`)."""
import dataclasses
import json

import numpy as np
import torch

from axis import GAP, Packed, Padded
from model import N_MELS, Batch

VOCAB = 200


@dataclasses.dataclass
class Utterance:
    tokens: np.ndarray  # [tokens]
    mel: np.ndarray     # [frames, N_MELS]


@dataclasses.dataclass
class Budget:
    """The fixed sizes of packed batches."""
    frames: int
    tokens: int
    utterances: int
    longest_frames: int
    longest_tokens: int

    @staticmethod
    def new(lengths, batch_size):
        """Room for `batch_size` utterances of mean length, and at least for the longest."""
        mean, longest = [-(-sum(each) // len(each)) for each in zip(*lengths)], [max(each) for each in zip(*lengths)]
        utterances = min(batch_size, len(lengths))
        room = lambda wanted, most: up(max(wanted, most + GAP), 64)
        return Budget(room(utterances * (mean[0] + GAP), longest[0]), room(utterances * (mean[1] * 9 // 8 + 1 + GAP), longest[1]),
                      -(-3 * utterances // 2), *longest)

    def cost(self, utterance):
        """With the gap. Utterances start at even frames: the decoder pairs them."""
        return up(len(utterance.mel) + GAP, 2), len(utterance.tokens) + GAP


def up(number, unit):
    return -(-number // unit) * unit


def random_lengths(rng, count):
    """Like LJSpeech's: 1.1 to 10.1 s, mean 6.5 s, standard deviation 2.2 s, even over the quantiles, so that few are like
    many: 32 of them make a packed batch of 17,984 frames. A phoneme lasts some six frames and has a blank behind it."""
    quantiles = (np.arange(count) + 0.5) / count
    share = np.quantile(rng.beta(1.84, 1.23, 65_536), quantiles)
    frames = rng.permutation((95 + 771 * share).astype(int))
    return [(int(f), int(2 * (f // 6 + more))) for f, more in zip(frames, rng.integers(0, 20, count))]


def read_lengths(path):
    """From a JSON list of pairs of frames and tokens."""
    with open(path) as file:
        return [(int(frames), int(tokens)) for frames, tokens in json.load(file)]


def utterances_of(rng, lengths):
    draw = lambda frames, tokens: Utterance(rng.integers(0, VOCAB, tokens), rng.standard_normal((frames, N_MELS), dtype=np.float32))
    return [draw(*each) for each in lengths]


def padded(utterances, frame_unit=64, token_unit=16):
    """Rounded up to units, so that shapes repeat."""
    tokens, frames = [len(u.tokens) for u in utterances], [len(u.mel) for u in utterances]
    text, sound = Padded.new(tokens, up(max(tokens), token_unit)), Padded.new(frames, up(max(frames), frame_unit))
    fill = lambda parts, length: torch.from_numpy(np.stack([np.pad(p, [(0, length - len(p))] + [(0, 0)] * (p.ndim - 1)) for p in parts]))
    return Batch(fill([u.tokens for u in utterances], text.longest), torch.zeros(len(utterances), dtype=torch.int64),
                 fill([u.mel for u in utterances], sound.longest), text, sound)


def packed(utterances, budget, attention):
    tokens, mel = np.zeros(budget.tokens, np.int64), np.zeros((budget.frames, N_MELS), np.float32)
    spans, at = ([], []), [0, 0]  # of frames, of tokens
    for utterance in utterances:
        mel[at[0]:at[0] + len(utterance.mel)], tokens[at[1]:at[1] + len(utterance.tokens)] = utterance.mel, utterance.tokens
        for axis, length in enumerate((len(utterance.mel), len(utterance.tokens))):
            spans[axis].append((at[axis], length))
        at = [start + cost for start, cost in zip(at, budget.cost(utterance))]
    assert at[0] <= budget.frames and at[1] <= budget.tokens and len(utterances) <= budget.utterances
    languages = torch.zeros(budget.utterances, dtype=torch.int64)
    return Batch(torch.from_numpy(tokens), languages, torch.from_numpy(mel),
                 Packed.new(spans[1], budget.tokens, budget.utterances, budget.longest_tokens, attention),
                 Packed.new(spans[0], budget.frames, budget.utterances, budget.longest_frames, attention))


def pack(utterances, budget, count):
    """Which utterances share a batch: the longest first, into the emptiest of `count` that takes it. The rest waits, as in
    training it does for the next window."""
    bins = [[[], 0, 0] for _ in range(count)]
    for utterance in sorted(utterances, key=lambda u: -len(u.mel)):
        frames, tokens = budget.cost(utterance)
        fits = [b for b in bins if b[1] + frames <= budget.frames and b[2] + tokens <= budget.tokens and len(b[0]) < budget.utterances]
        if fits:
            bin = min(fits, key=lambda b: b[1])
            bin[0].append(utterance)
            bin[1] += frames
            bin[2] += tokens
    return [b[0] for b in bins]
