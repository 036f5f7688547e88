"""How fast PyTorch trains the same voice. Needs PyTorch 2.11 and numpy; prints a JSON object for every row as it comes.

  python bench.py                                   # compiled padded and packed, every size, 32 utterances a batch
  python bench.py --sizes small --modes packed --attention varlen flash flex --dense rows cudnn --depthwise rows cudnn
  python bench.py --lengths lengths.json            # a JSON list of [frames, tokens]: the lengths that ours ran on
  python bench.py --scope block --parallel 4        # where compiling takes longer than --ready-seconds
  python check.py                                   # on a CPU: both forms are one network, and it is that of src/model

Modes. `eager` and `compile`: batches padded to their longest (rounded up to 64 frames and 16 tokens, so that shapes repeat);
`compile` is `torch.compile(mode="reduce-overhead")`, CUDA graphs of what lies before and after the search. `packed`: the same
utterances end to end as ours has them, in one fixed shape with gaps; compiled, and the whole step, search, clipping, AdamW
and EMA included, captured in one CUDA graph and replayed. All: bf16 autocast, fused AdamW, gradient clipping, an EMA by
`torch._foreach_lerp_`, no loss read on the host.

Method. Random utterances with lengths like LJSpeech's. All batches are on the GPU before the clock starts and every shape has
been warmed up: what is measured is the step alone, which favours PyTorch. Every row is a process of its own; those of one
wave (`--parallel`) compile side by side, and are timed one after another, with all others waiting. MFU is by matrix products
of speech alone: what PyTorch's counter finds for utterances without padding, as a share of the best rate that a large bf16
product reaches here. `mfu_padded` counts padding and gaps as work, too.
"""
import argparse
import itertools
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from axis import ATTENTIONS, moved, tensors_of
from batches import VOCAB, Budget, pack, packed, padded, random_lengths, read_lengths, utterances_of
from model import N_MELS, SIZES, Voice, Ways
from search import SEARCHES

RATE_HZ, HOP = 22_050, 256
CLIP, EMA_RATE = 1.0, 1e-3


class Trainer:
    """`row`: what is measured, see `rows_of`. Batches are on the device; of packed ones all have the same shapes."""

    def __init__(self, row, batches, device):
        torch.manual_seed(1)
        self.device, self.batches, self.packed = device, batches, row["mode"] == "packed"
        size, cuda = row["size"], device.type == "cuda"
        self.kind = torch.bfloat16 if cuda else torch.float32
        self.voice = Voice(SIZES.get(size, size) if isinstance(size, str) else size, VOCAB,
                           ways=Ways(row["dense"], row["depthwise"]), kind=self.kind).to(device)
        self.parameters = list(self.voice.parameters())
        self.ema = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True,
                                           capturable=self.packed and cuda)
        self.search = SEARCHES[row["search"]]()
        self.encode, self.losses, self.graph = self.voice.encode, self.voice.losses, None
        # What a captured step reads: batches are copied into it.
        self.fixed, self.held, self.capture_error = (moved(batches[0], device) if self.packed else None), 0, None
        if row["mode"] != "eager":
            self.compile(row)
        if self.packed and cuda:
            self.capture()

    def compile(self, row):
        backend = {"backend": row["backend"]} if "backend" in row else {"mode": row["compile_mode"]}
        options = {"dynamic": False, "fullgraph": row["scope"] == "whole"} | backend
        if row["scope"] == "whole":
            self.encode, self.losses = torch.compile(self.encode, **options), torch.compile(self.losses, **options)
            return
        # One graph for all blocks of a kind, which compiles several times faster; what lies between runs eagerly.
        decoder = self.voice.decoder
        for block in (*self.voice.encoder.block, *decoder.block, decoder.first, decoder.last, self.voice.duration):
            block.compile(**options)

    def forward_backward(self, batch):
        if self.device.type == "cuda" and not self.packed:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device.type, self.kind, enabled=self.kind != torch.float32):
            hidden, table = self.encode(batch)
            path = self.search(table[..., :N_MELS], batch)
            loss = self.losses(batch, hidden, table, path)
        loss.backward()
        return loss.detach()

    @torch.no_grad()  # the EMA would otherwise keep a graph that grows with every step
    def update(self):
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters], foreach=True)
        # Clipping inside the fused step, the way loss scaling goes: gradients are divided there, without a pass of their own.
        self.optimizer.grad_scale = (norm / CLIP).clamp(min=1)
        self.optimizer.step()
        torch._foreach_lerp_(self.ema, self.parameters, EMA_RATE)

    def body(self, batch):
        loss = self.forward_backward(batch)
        self.update()
        return loss

    def step(self, number):
        number %= len(self.batches)
        batch = self.batches[number]
        if self.packed:
            if self.held != number:
                torch._foreach_copy_(list(tensors_of(self.fixed)), list(tensors_of(batch)))
            batch, self.held = self.fixed, number
        if self.graph is not None:
            self.graph.replay()
            return self.loss
        loss = self.body(batch)
        self.optimizer.zero_grad(set_to_none=True)
        return loss.clone() if self.device.type == "cuda" else loss

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for number in range(3):
                self.step(number)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.loss = self.body(self.fixed)
            self.graph = graph
        except Exception as error:  # compiled and uncaptured is better than no figure
            self.capture_error = repr(error)[:300]
            self.optimizer.zero_grad(set_to_none=True)


def sync(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def matmul_ceiling(device, n=8192):
    """TFLOP/s of the best of several large products: bf16, and on a CPU, where this is only tried out, small ones of f32."""
    n, kind = (n, torch.bfloat16) if device.type == "cuda" else (512, torch.float32)
    a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
    best = 0.0
    for _ in range(5):
        sync(device)
        start = time.perf_counter()
        for _ in range(20):
            a @ b
        sync(device)
        best = max(best, 20 * 2 * n**3 / (time.perf_counter() - start) / 1e12)
    return best


def timed(trainer, steps, waiting=False):
    """Seconds of each step where the host waits for it, else of all."""
    sync(trainer.device)
    times, start = [], time.perf_counter()
    for number in range(steps):
        begun = time.perf_counter()
        trainer.step(number)
        if waiting:
            sync(trainer.device)
            times.append(time.perf_counter() - begun)
    sync(trainer.device)
    return times if waiting else time.perf_counter() - start


def measure(trainer, steps, seconds):
    count = len(trainer.batches)
    each = timed(trainer, 2 * count) / (2 * count)
    steps = max(count, min(steps, int(seconds / 2 / each)))
    median_s = statistics.median(timed(trainer, steps, waiting=True))
    mean_s = timed(trainer, steps) / steps
    speech = statistics.mean(int(one.frames.lens.sum()) for one in trainer.batches)
    computed = statistics.mean(one.mel.numel() // N_MELS for one in trainer.batches)
    return {"step_ms": mean_s * 1e3, "step_ms_median_with_sync": median_s * 1e3, "steps": steps,
            "audio_seconds_per_second": speech * HOP / RATE_HZ / mean_s,
            "speech_frames": speech, "computed_frames": computed, "padding_share": 1 - speech / computed,
            "loss": float(trainer.step(0))}


def flops(size, batches):
    """Matrix products of a step in the mean, counted without being made."""
    total = 0
    with torch.device("meta"):
        voice = Voice(SIZES[size], VOCAB)
    for batch in batches:
        batch = moved(batch, "meta")
        with FlopCounterMode(display=False) as counter:
            hidden, table = voice.encode(batch)
            voice.losses(batch, hidden, table, torch.empty(batch.mel.shape[:-1], dtype=torch.int64, device="meta")).backward()
        total += counter.get_total_flops()
    return total / len(batches)


def flops_per_frame(size, lengths):
    """What a frame of speech costs where nothing is padded: utterances alone."""
    alone = [padded([one], 2, 1) for one in utterances_of(np.random.default_rng(2), lengths[:24])]
    return flops(size, alone) * len(alone) / sum(int(one.frames.lens.sum()) for one in alone)


def lengths_of(args):
    """Of the corpus, and of what is trained of it: its first."""
    count = args.batch_size * args.batches
    corpus = read_lengths(args.lengths) if args.lengths else random_lengths(np.random.default_rng(1), count)
    return corpus, list(itertools.islice(itertools.cycle(corpus), count))


def batches_of(row, args):
    corpus, lengths = lengths_of(args)
    utterances = utterances_of(np.random.default_rng(1), lengths)
    if row["mode"] == "packed":
        budget = Budget.new(corpus, args.batch_size)
        return [packed(each, budget, row["attention"]) for each in pack(utterances, budget, args.batches)]
    return [padded(utterances[i:i + args.batch_size]) for i in range(0, len(utterances), args.batch_size)]


def rows_of(args):
    """What is to be measured, one after another."""
    common = {"search": args.search, "scope": "whole"}
    for size, mode in itertools.product(args.sizes, args.modes):
        if mode == "eager":  # shifted rows are for a compiler
            yield common | {"size": size, "mode": mode, "dense": "cudnn", "depthwise": "cudnn"}
            continue
        attentions = args.attention if mode == "packed" else [None]
        for attention, dense, depthwise in itertools.product(attentions, args.dense, args.depthwise):
            row = common | {"size": size, "mode": mode, "dense": dense, "depthwise": depthwise, "compile_mode": "reduce-overhead"}
            if mode == "packed":
                row |= {"attention": attention, "scope": args.scope, "compile_mode": args.packed_compile_mode}
            yield row


def work(row, args):
    """A row in its own process: makes everything ready, waits for a line, measures."""
    device, begun = torch.device(args.device), time.perf_counter()
    torch._dynamo.config.cache_size_limit = 64
    batches = [moved(one, device) for one in batches_of(row, args)]
    trainer = Trainer(row, batches, device)
    timed(trainer, 4 * len(batches))
    say({"ready": True})
    ready_s = time.perf_counter() - begun
    sys.stdin.readline()
    found = {"parameters": sum(p.numel() for p in trainer.parameters), "captured": trainer.graph is not None, "ready_s": ready_s}
    if trainer.capture_error:
        found["capture_error"] = trainer.capture_error
    found |= measure(trainer, args.steps, args.seconds)
    if device.type == "cuda":
        found["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    say(found)


def say(thing):
    rounded = {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in thing.items()}
    print(json.dumps(rounded), flush=True)


class Worker:
    def __init__(self, row, arguments, threads):
        self.row, self.lines = row, queue.Queue()
        self.errors = tempfile.TemporaryFile("w+")
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
        command = [sys.executable, __file__, *arguments, "--worker", json.dumps(row)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env=environment, start_new_session=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            try:
                self.lines.put(json.loads(line))
            except ValueError:  # what a library prints
                pass
        self.lines.put(None)

    def hear(self, seconds):
        """What the worker says next, or why it says nothing."""
        try:
            said = self.lines.get(timeout=max(seconds, 0.1))
        except queue.Empty:
            said = {"error": "out of time"}
        if said is None:
            self.process.wait()
            self.errors.seek(0)
            lines = [line for line in self.errors.read().splitlines() if line.strip()]
            raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Unsupported)\b", line)]
            said = {"error": " | ".join(raised[-2:] or lines[-3:])[:600] or f"ended with {self.process.returncode}"}
        return said

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        """With the compilers that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def run_wave(rows, args, arguments, finish):
    threads = max(4, (os.cpu_count() or 1) // len(rows))  # they do not all compile kernels at the same time
    workers = [Worker(row, arguments, threads) for row in rows]
    try:
        deadline = time.perf_counter() + args.ready_seconds
        said = [worker.hear(deadline - time.perf_counter()) for worker in workers]
        for worker, heard in zip(workers, said):
            if "error" in heard:  # it must not compile while others are timed
                worker.end()
        for worker, heard in zip(workers, said):
            if "error" not in heard:
                worker.go()
                heard = worker.hear(3 * args.seconds + 20)
            worker.end()
            finish(worker.row, heard)
    finally:
        for worker in workers:
            worker.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--modes", nargs="+", default=["compile", "packed"], choices=["eager", "compile", "packed"])
    parser.add_argument("--attention", nargs="+", default=["varlen"], choices=list(ATTENTIONS), help="of packed batches")
    parser.add_argument("--dense", nargs="+", default=["rows"], choices=["rows", "cudnn"], help="how the text's convolutions are computed")
    parser.add_argument("--depthwise", nargs="+", default=["rows"], choices=["rows", "cudnn"])
    parser.add_argument("--packed-compile-mode", default="default", choices=["default", "max-autotune-no-cudagraphs"])
    parser.add_argument("--scope", default="whole", choices=["whole", "block"], help="of packed; block: each kind of block is compiled once, which is faster")
    parser.add_argument("--search", default="triton", choices=list(SEARCHES))
    parser.add_argument("--lengths", help="file with a JSON list of [frames, tokens]")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200, help="at most, of a row")
    parser.add_argument("--seconds", type=float, default=2, help="at most, to time a row")
    parser.add_argument("--parallel", type=int, default=8, help="rows that compile side by side")
    parser.add_argument("--ready-seconds", type=float, default=110, help="at most, until a wave of rows is ready")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker), args)
    device, (corpus, lengths) = torch.device(args.device), lengths_of(args)
    ceiling = matmul_ceiling(device)
    say({"device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", "torch": torch.__version__,
         "batch_size": args.batch_size, "batches": args.batches, "budget": vars(Budget.new(corpus, args.batch_size)), "matmul_tflops": ceiling})
    per_frame = {size: flops_per_frame(size, lengths) for size in args.sizes}

    def finish(row, found):
        if "step_ms" in found:
            rate = per_frame[row["size"]] / (found["step_ms"] / 1e3) / (ceiling * 1e12)
            found |= {"gflop_per_speech_frame": per_frame[row["size"]] / 1e9, "mfu": rate * found["speech_frames"]}
            found["mfu_padded"] = rate * found["computed_frames"]
        say(row | found)

    rows = list(rows_of(args))
    for first in range(0, len(rows), args.parallel):
        run_wave(rows[first:first + args.parallel], args, sys.argv[1:], finish)


if __name__ == "__main__":
    main()
