"""Whether the padded and the packed peer are one network: python check.py [CHECKPOINT/model.safetensors]. Needs no GPU.

The same weights, utterances, alignment, times and noise give the same loss and the same gradients; both searches find the same
path; names, shapes and counts of parameters are those of `src/model`; and the packed step compiles and trains.
"""
import os
import sys

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import torch
import torch.nn.attention.flex_attention as flex

from axis import document_blocks
from batches import Budget, VOCAB, pack, packed, padded, random_lengths, up, utterances_of
from bench import Trainer
from model import N_MELS, SIZES, Draw, Size, Voice, Ways
from search import SEARCHES

SMALLEST = Size(32, 2, 2, 48, 4, 3, dropout=0.0)
LENGTHS = [(41, 11), (64, 20), (23, 9), (90, 31), (2, 1), (57, 57)]
PARAMETERS = {"tiny": 7.4, "small": 18.9, "normal": 41.4, "big": 102.0}  # millions, docs/model.md


def forms(attention):
    utterances = utterances_of(np.random.default_rng(3), LENGTHS)
    budget = Budget(300 + 130, 200, 9, 90, 57)
    return padded(utterances), packed(utterances, budget, attention)


def draws(one, other):
    """The same chance for both: what is drawn for utterances, and for rows where they lie."""
    torch.manual_seed(5)
    count, capacity = len(one.frames.lens), len(other.frames.lens)
    times, chance, noise = torch.rand(capacity), torch.rand(6, capacity), torch.randn_like(one.mel)
    laid = torch.randn_like(other.mel)
    for i in range(count):
        start, length = int(other.frames.starts[i]), int(other.frames.lens[i])
        laid[start:start + length] = noise[i, :length]
    return Draw(times[:count], chance[:, :count], noise), Draw(times, chance, laid)


def losses_and_gradients(voice, batch, draw, search):
    voice.zero_grad(set_to_none=True)
    hidden, table = voice.encode(batch)
    loss = voice.losses(batch, hidden, table, search(table[..., :N_MELS], batch), draw)
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in voice.named_parameters()}


def random_voice(ways=Ways()):
    torch.manual_seed(1)
    voice = Voice(SMALLEST, VOCAB, ways=ways)
    for parameter in voice.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return voice


def both_forms_are_one_network():
    search, known = SEARCHES["host"](), None
    for attention in ("dense", "flex"):
        for way in ("rows", "cudnn"):
            voice = random_voice(Ways(way, way))
            batches = forms(attention)
            for name, batch, draw in zip(("padded", attention), batches, draws(*batches)):
                found = losses_and_gradients(voice, batch, draw, search)
                known = known or found
                worst = max(((found[1][n] - g).abs().max() / g.abs().max().clamp(min=1e-3)).item() for n, g in known[1].items())
                print(f"{name:6} {way:5} loss {found[0]:.6f}, gradients differ by {worst:.1e} of their largest")
                assert abs(found[0] - known[0]) < 1e-4 * known[0] and worst < 1e-4


def mend_interpreter():
    """Triton 3.6's takes a loop's bound in a way that numpy 2.4 no longer allows."""
    from triton.runtime import interpreter
    patch = interpreter._patch_lang_tensor
    def mended(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
    interpreter._patch_lang_tensor = mended


def searches_agree():
    mend_interpreter()
    voice = random_voice()
    for name, batch in zip(("padded", "packed"), forms("dense")):
        _, table = voice.encode(batch)
        paths = [SEARCHES[kind]()(table[..., :N_MELS], batch) for kind in ("host", "triton")]
        inside = batch.frames.mask[..., 0].bool()
        assert torch.equal(paths[0][inside], paths[1][inside]), name
        for i, (start, length) in enumerate(zip(batch.frames.starts.tolist(), batch.frames.lens.tolist())):
            own = paths[1].flatten()[start:start + length] - batch.text.starts[i]
            assert length == 0 or own[0] == 0 and own[-1] == batch.text.lens[i] - 1 and own.diff().ge(0).all() and own.diff().le(1).all()
    print("searches agree")


def blocks_cover_their_documents():
    lengths = random_lengths(np.random.default_rng(4), 40)
    budget = Budget.new(lengths, 8)
    axis = packed(pack(utterances_of(np.random.default_rng(4), lengths), budget, 1)[0], budget, "flex").frames.half()
    mask, segment = document_blocks(axis.segment), axis.segment
    same = segment[:, None] == segment[None]
    blocks = up(len(segment), 128) // 128
    wide = torch.zeros(blocks * 128, blocks * 128, dtype=torch.bool)
    wide[:len(segment), :len(segment)] = same
    tiles = wide.view(blocks, 128, blocks, 128).permute(0, 2, 1, 3).flatten(2)
    for count, at, expected in ((mask.kv_num_blocks, mask.kv_indices, tiles.any(2) & ~tiles.all(2)),
                                (mask.full_kv_num_blocks, mask.full_kv_indices, tiles.all(2))):
        for block in range(blocks):
            listed = set(at[0, 0, block, :count[0, 0, block]].tolist())
            assert listed == set(expected[block].nonzero().flatten().tolist()), block
    print(f"flex looks at {int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())} of {blocks**2} blocks")


def parameters_are_ours(checkpoint):
    for name, millions in PARAMETERS.items():
        with torch.device("meta"):
            count = sum(p.numel() for p in Voice(SIZES[name], VOCAB).parameters())
        print(f"{name}: {count:,} parameters")
        assert round(count / 1e6, 1) == millions
    if checkpoint:
        from safetensors.torch import load_file
        ours = {name: tuple(tensor.shape) for name, tensor in load_file(checkpoint).items()}
        size = next(n for n, s in SIZES.items() if (s.text_dim, s.decoder_dim) == (ours["encoder.embedding"][1], ours["decoder.noisy.weight"][0]))
        with torch.device("meta"):
            voice = Voice(SIZES[size], ours["encoder.embedding"][0], ours["encoder.languages.embedding"][0])
        assert {name: tuple(p.shape) for name, p in voice.named_parameters()} == ours
        print(f"{size}: names and shapes are the checkpoint's")


def row_of(attention, scope="whole"):
    return {"size": SMALLEST, "mode": "packed", "search": "host", "attention": attention, "dense": "rows", "depthwise": "rows",
            "scope": scope, "compile_mode": "default", "backend": "aot_eager"}


def update_clips():
    """Against PyTorch's own clipping and plain AdamW."""
    batch = forms("dense")[1]
    trainers = [Trainer(row_of("dense") | {"mode": "eager"}, [batch], torch.device("cpu")) for _ in range(2)]
    for number, trainer in enumerate(trainers):
        torch.manual_seed(6)
        trainer.forward_backward(batch)
        norm = torch.nn.utils.get_total_norm([p.grad for p in trainer.parameters])
        assert norm > 1, norm
        if number == 0:
            trainer.update()
        else:
            torch.nn.utils.clip_grad_norm_(trainer.parameters, 1.0)
            torch.optim.AdamW(trainer.parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01).step()
    for one, other, in zip(*(t.parameters for t in trainers)):
        assert torch.allclose(one, other, atol=2e-5) and torch.allclose(one.grad, other.grad, atol=1e-6)
    print(f"clipped from a norm of {norm:.2f}")


def packed_step_compiles():
    """Traced whole, without a break, forward and backward, for every attention that a CPU can trace."""
    for attention in ("dense", "flex"):
        for scope in ("whole", "block"):
            torch._dynamo.reset()
            torch.manual_seed(2)
            trainer = Trainer(row_of(attention, scope), [forms(attention)[1]], torch.device("cpu"))
            losses = [float(trainer.step(0)) for _ in range(12)]
            print(f"compiled {scope}, {attention}: loss {losses[0]:.3f} to {losses[-1]:.3f}")
            assert losses[-1] < losses[0]


if __name__ == "__main__":
    flex._validate_device = lambda *_: None  # refuses gradients on a CPU, where its eager form has them
    torch.set_num_threads(1)
    parameters_are_ours(sys.argv[1] if len(sys.argv) > 1 else None)
    both_forms_are_one_network()
    searches_agree()
    blocks_cover_their_documents()
    update_clips()
    packed_step_compiles()
    print("all is well")
