"""The peers: what a Python trainer does between a recording and its features. Prints seconds as JSON.

    peers.py librosa|torchaudio|soundfile CORPUS WORKERS pcm|mel LOUDNESS

Timed from the first clip to the last: imports, worker start and a first clip that compiles and fills tables are not
counted, and nothing is written to disk. Both favour the peer.
"""
import json
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import soundfile

RATE_HZ, N_FFT, HOP, N_MELS = 22050, 1024, 256, 80
TRIM_DB, FLOOR, TARGET_LUFS = 40, 1e-5, -20.0
CLIPS_AT_A_TIME = 16


class Librosa:
    def __init__(self, content, loudness):
        import librosa
        import pyloudnorm
        self.librosa, self.content = librosa, content
        self.meter = pyloudnorm.Meter(RATE_HZ) if loudness else None
        self.pyloudnorm = pyloudnorm

    def __call__(self, path):
        samples, _ = self.librosa.load(path, sr=RATE_HZ)
        samples, _ = self.librosa.effects.trim(samples, top_db=TRIM_DB)
        if self.meter and len(samples) > 0.4 * RATE_HZ:
            lufs = self.meter.integrated_loudness(samples)
            samples = self.pyloudnorm.normalize.loudness(samples, lufs, TARGET_LUFS)
        if self.content == "pcm":
            return (np.clip(samples, -1, 1) * 32767).astype(np.int16)
        mel = self.librosa.feature.melspectrogram(y=samples, sr=RATE_HZ, n_fft=N_FFT, hop_length=HOP, n_mels=N_MELS,
                                                  power=1.0, pad_mode="constant")
        return np.log(np.maximum(mel, FLOOR)).astype(np.float16)


class Torchaudio:
    """Also a `torch.utils.data.Dataset`. torchaudio 2.11 decodes only with torchcodec and FFmpeg, so soundfile does."""

    def __init__(self, content, loudness, paths=()):
        import torch
        import torchaudio
        self.torch, self.torchaudio = torch, torchaudio
        self.content, self.loudness, self.paths = content, loudness, paths
        self.resamplers = {}
        self.mel = torchaudio.transforms.MelSpectrogram(RATE_HZ, N_FFT, hop_length=HOP, n_mels=N_MELS, power=1.0,
                                                        norm="slaney", mel_scale="slaney", pad_mode="constant")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self(self.paths[index])

    def __call__(self, path):
        torch = self.torch
        samples, rate_hz = soundfile.read(path, dtype="float32")
        samples = torch.from_numpy(samples)
        samples = samples.mean(dim=1) if samples.ndim > 1 else samples
        if rate_hz != RATE_HZ:
            if rate_hz not in self.resamplers:
                self.resamplers[rate_hz] = self.torchaudio.transforms.Resample(rate_hz, RATE_HZ)
            samples = self.resamplers[rate_hz](samples)
        samples = self.trim(samples)
        if self.loudness and len(samples) > 0.4 * RATE_HZ:
            lufs = self.torchaudio.functional.loudness(samples[None], RATE_HZ)
            samples = samples * 10 ** ((TARGET_LUFS - lufs) / 20)
        if self.content == "pcm":
            return (samples.clamp(-1, 1) * 32767).to(torch.int16)
        return self.mel(samples).clamp_min(FLOOR).log().half()

    def trim(self, samples):
        """torchaudio has no trimming by level; this is librosa's, in tensors and without overlap."""
        frame = RATE_HZ // 100
        whole = samples[:len(samples) // frame * frame].view(-1, frame)
        level = whole.pow(2).mean(dim=1)
        loud = self.torch.nonzero(level > level.max() * 10 ** (-TRIM_DB / 10))
        return samples[int(loud[0]) * frame:(int(loud[-1]) + 1) * frame] if len(loud) else samples


class Soundfile:
    def __init__(self, *_):
        pass

    def __call__(self, path):
        return soundfile.read(path, dtype="float32")[0]


KINDS = {"librosa": Librosa, "torchaudio": Torchaudio, "soundfile": Soundfile}


def start(kind, content, loudness, warm_up):
    """A worker's own objects, and one clip to compile what is compiled on first use."""
    global work
    work = KINDS[kind](content, loudness)
    work(warm_up)


def count(path):
    return work(path).shape[-1]  # results stay in the worker: handing them over is not part of the pool's price


def pool_seconds(kind, paths, workers, content, loudness):
    arguments = (kind, content, loudness, paths[0])
    with multiprocessing.get_context("spawn").Pool(workers, start, arguments) as pool:
        pool.map(count, paths[:workers * 4], chunksize=1)
        begin = time.perf_counter()
        done = sum(1 for _ in pool.imap_unordered(count, paths, chunksize=CLIPS_AT_A_TIME))
        return time.perf_counter() - begin, done


class Order:
    """A sampler whose indices can be exchanged, so that workers are warm before the clock starts."""

    def __init__(self, indices):
        self.indices = indices

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def torch_seconds(paths, workers, content, loudness):
    import torch
    torch.set_num_threads(1)
    order = Order([0] * CLIPS_AT_A_TIME * workers)
    dataset = Torchaudio(content, loudness, paths)
    loader = torch.utils.data.DataLoader(dataset, batch_size=CLIPS_AT_A_TIME, sampler=order, num_workers=workers,
                                         collate_fn=list, persistent_workers=True)
    sum(len(batch) for batch in loader)
    order.indices = range(len(paths))
    begin = time.perf_counter()
    done = sum(len(batch) for batch in loader)
    return time.perf_counter() - begin, done


def main():
    kind, corpus, workers, content, loudness = sys.argv[1:]
    paths = sorted(str(path) for path in Path(corpus, "wavs").glob("*.wav"))
    workers, loudness = int(workers), loudness == "1"
    if kind == "torchaudio":
        seconds, done = torch_seconds(paths, workers, content, loudness)
    else:
        seconds, done = pool_seconds(kind, paths, workers, content, loudness)
    assert done == len(paths), (done, len(paths))
    print(json.dumps({"seconds": seconds, "clips": done}))


if __name__ == "__main__":
    main()
