"""An untrained voice of Piper, by Piper's own code at its default settings ("medium": 22,050 Hz, some 15 M weights), exported as
Piper exports its voices. It makes noise, and takes as long as a trained one: benchmarks need no more, and no voice of Piper's
is on a package index.   python piper_voice.py OUT.onnx"""
import sys

import torch
from piper.train.vits.models import SynthesizerTrn

torch.manual_seed(7)
# The defaults of piper.train's VitsModel, which needs more packages to be imported than are needed here.
voice = SynthesizerTrn(
    n_vocab=256, spec_channels=513, segment_size=32, inter_channels=192, hidden_channels=192, filter_channels=768, n_heads=2,
    n_layers=6, kernel_size=3, p_dropout=0.1, resblock="2", resblock_kernel_sizes=(3, 5, 7),
    resblock_dilation_sizes=((1, 2), (2, 6), (3, 12)), upsample_rates=(8, 8, 4), upsample_initial_channel=256,
    upsample_kernel_sizes=(16, 16, 8), n_speakers=1, gin_channels=0, use_sdp=True)
voice.eval()
with torch.no_grad():
    voice.dec.remove_weight_norm()


def forward(text, lengths, scales):
    noise_scale, length_scale, noise_scale_w = scales[0], scales[1], scales[2]
    return voice.infer(text, lengths, noise_scale=noise_scale, length_scale=length_scale, noise_scale_w=noise_scale_w)[0].unsqueeze(1)


voice.forward = forward
example = (torch.randint(0, 256, (1, 50)), torch.tensor([50]), torch.tensor([0.667, 1.0, 0.8]))
axes = {"input": {0: "batch_size", 1: "phonemes"}, "input_lengths": {0: "batch_size"}, "output": {0: "batch_size", 2: "time"}}
torch.onnx.export(voice, example, sys.argv[1], opset_version=15, input_names=["input", "input_lengths", "scales"],
                  output_names=["output"], dynamic_axes=axes, dynamo=False)
print(sum(weight.numel() for weight in voice.state_dict().values()) / 1e6, "M weights")
