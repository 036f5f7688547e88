#!/usr/bin/env python3
"""A checkpoint as it is published: the averaged weights in half precision, and what it takes to speak with them.

  publish.py CHECKPOINT OUT

CHECKPOINT is a folder step-… of `myxtts train` or `train-vocoder`. Needs torch and safetensors."""
import os, shutil, sys
from safetensors.torch import load_file, save_file

run, out = sys.argv[1:]
os.makedirs(out, exist_ok=True)
for name in os.listdir(run):
    if name.endswith((".yaml", ".json")) or name == "voice.safetensors":
        shutil.copy(os.path.join(run, name), out)
average = os.path.join(run, "model.ema.safetensors")
weights = load_file(average if os.path.exists(average) else os.path.join(run, "model.safetensors"))
# The moving average is kept as a sum; this divides it.
share = float(weights.pop("weight_sum", 1.0))
save_file({name: (tensor / share).half().contiguous() for name, tensor in weights.items()}, os.path.join(out, "model.safetensors"))
