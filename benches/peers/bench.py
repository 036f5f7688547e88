"""How fast PyTorch trains the same voice. Needs PyTorch 2.11 and numpy; prints one JSON object.

  python bench.py [--sizes tiny small normal big] [--modes eager compile] [--search triton host] [--batch-size 16]

Method. Random utterances with lengths like LJSpeech's, padded to the longest of their batch (rounded up to 64 frames
and 16 tokens, so that shapes repeat). bf16 autocast, fused AdamW, gradient clipping, an EMA by `torch._foreach_lerp_`,
no loss read on the host. `compile` is `torch.compile(mode="reduce-overhead")`, CUDA graphs of what lies before and after
the search. All batches are on the GPU before the clock starts and every shape has been warmed up: what is measured is
the step alone, which favours PyTorch. The median of the steps counts. MFU is by the matrix products that PyTorch's own
counter finds in the padded step, as a share of the best rate that a large bf16 product reaches here.
"""
import argparse
import dataclasses
import json
import statistics
import sys
import time

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from model import N_MELS, SIZES, Voice
from search import SEARCHES

RATE_HZ, HOP, REFERENCE_FRAMES, VOCAB = 22_050, 256, 192, 200


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    languages: torch.Tensor
    mel: torch.Tensor
    reference: torch.Tensor
    text_mask: torch.Tensor   # [batch, tokens, 1], bool
    frame_mask: torch.Tensor  # [batch, frames, 1], bool
    text_lens: torch.Tensor
    frame_lens: torch.Tensor
    text_lens_host: torch.Tensor
    frame_lens_host: torch.Tensor


def lengths(rng, count):
    """1.1 to 10.1 s, mean near 6 s, as in the packer's test; a phoneme lasts some six frames and has a blank behind it."""
    frames = 95 + np.minimum(rng.integers(0, 400, count) + rng.integers(0, 400, count), 780)
    return frames, 2 * (frames // 6 + rng.integers(0, 20, count))


def batch(rng, count, device):
    frames, tokens = lengths(rng, count)
    most_frames, most_tokens = -(-frames.max() // 64) * 64, -(-tokens.max() // 16) * 16
    mask = lambda lens, most: torch.from_numpy(np.arange(most)[None] < lens[:, None])[..., None].to(device)
    draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device)
    ints = lambda values: torch.from_numpy(values.astype(np.int32))
    frame_mask = mask(frames, most_frames)
    return Batch(
        tokens=torch.from_numpy(rng.integers(0, VOCAB, (count, most_tokens))).to(device),
        languages=torch.zeros(count, dtype=torch.int64, device=device),
        mel=draw(count, most_frames, N_MELS) * frame_mask,
        reference=draw(count, REFERENCE_FRAMES, N_MELS),
        text_mask=mask(tokens, most_tokens),
        frame_mask=frame_mask,
        text_lens=ints(tokens).to(device), frame_lens=ints(frames).to(device),
        text_lens_host=ints(tokens), frame_lens_host=ints(frames),
    )


class Trainer:
    def __init__(self, size, mode, search, device):
        torch.manual_seed(1)
        self.device = device
        self.voice = Voice(SIZES[size], VOCAB).to(device)
        self.parameters = list(self.voice.parameters())
        self.ema = [p.detach().clone() for p in self.parameters]
        fused = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, fused=fused)
        self.search = search
        self.encode, self.losses = self.voice.encode, self.voice.losses
        if mode == "compile":
            options = {"mode": "reduce-overhead", "dynamic": False}
            self.encode, self.losses = torch.compile(self.encode, **options), torch.compile(self.losses, **options)

    def forward_backward(self, batch):
        if self.device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device.type, torch.bfloat16):
            latents, hidden, table = self.encode(batch)
            path = self.search(table[..., :N_MELS], batch)
            loss = self.losses(batch, latents, hidden, table, path)
        loss.backward()

    def step(self, batch):
        self.forward_backward(batch)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch._foreach_lerp_(self.ema, self.parameters, 1e-3)


def sync(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def matmul_ceiling(device, n=8192):
    """TFLOP/s of the best of several large bf16 products."""
    n = n if device.type == "cuda" else 512
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(5):
        sync(device)
        start = time.perf_counter()
        for _ in range(20):
            a @ b
        sync(device)
        best = max(best, 20 * 2 * n**3 / (time.perf_counter() - start) / 1e12)
    return best


def measure(trainer, batches, steps):
    for _ in range(4):
        for one in batches:
            trainer.step(one)
    sync(trainer.device)
    times = []
    for number in range(steps):
        start = time.perf_counter()
        trainer.step(batches[number % len(batches)])
        sync(trainer.device)
        times.append(time.perf_counter() - start)
    sync(trainer.device)
    start = time.perf_counter()
    for number in range(steps):
        trainer.step(batches[number % len(batches)])
    sync(trainer.device)
    mean_s = (time.perf_counter() - start) / steps
    speech = statistics.mean(int(one.frame_lens_host.sum()) for one in batches)
    padded = statistics.mean(one.mel.shape[0] * one.mel.shape[1] for one in batches)
    return {
        "step_ms": mean_s * 1e3, "step_ms_median_with_sync": statistics.median(times) * 1e3,
        "audio_seconds_per_second": speech * HOP / RATE_HZ / mean_s,
        "speech_frames": speech, "padded_frames": padded, "padding_share": 1 - speech / padded,
    }


def flops(size, search, batches, device):
    trainer, total = Trainer(size, "eager", search, device), 0
    for one in batches:
        with FlopCounterMode(display=False) as counter:
            trainer.forward_backward(one)
        total += counter.get_total_flops()
    return total / len(batches)


def flops_per_frame(size, search, rng, device, utterances=24):
    """What a frame of speech costs where nothing is padded: utterances alone."""
    alone = [batch(rng, 1, device) for _ in range(utterances)]
    frames = sum(int(one.frame_lens_host.sum()) for one in alone)
    return flops(size, search, alone, device) * utterances / frames


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--modes", nargs="+", default=["eager", "compile"], choices=["eager", "compile"])
    parser.add_argument("--search", nargs="+", default=["triton", "host"], choices=list(SEARCHES))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch._dynamo.config.cache_size_limit = 64
    rng = np.random.default_rng(1)
    batches = [batch(rng, args.batch_size, device) for _ in range(args.batches)]
    searches = {name: SEARCHES[name]() for name in args.search}
    ceiling, rows = matmul_ceiling(device), []
    for size in args.sizes:
        work = flops(size, searches[args.search[0]], batches, device)
        per_frame = flops_per_frame(size, searches[args.search[0]], np.random.default_rng(2), device)
        for mode in args.modes:
            for name, search in searches.items():
                torch._dynamo.reset()
                trainer = Trainer(size, mode, search, device)
                row = {"size": size, "mode": mode, "search": name,
                       "parameters": sum(p.numel() for p in trainer.parameters), "step_gflop": work / 1e9, "gflop_per_speech_frame": per_frame / 1e9}
                row |= measure(trainer, batches, args.steps)
                row["mfu"] = work / (row["step_ms"] / 1e3) / (ceiling * 1e12)
                print(json.dumps(row), file=sys.stderr)
                rows.append(row)
                del trainer
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "batch_size": args.batch_size,
                      "matmul_tflops": ceiling, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
