"""Monotonic alignment search, two ways that PyTorch users have, on batches of either form.

`host`: scores are copied to the host, a compiled loop runs over utterances in threads, and the path is copied back: what
Matcha-TTS does with Cython. `triton`: one program for each utterance, and nothing leaves the GPU.
"""
import ctypes
import pathlib
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <math.h>
void search(const float* scores, const int* tokens, const int* frames, long long* path, int batch, int most_frames,
            int most_tokens) {
    memset(path, 0, (size_t)batch * most_frames * sizeof(long long));
    #pragma omp parallel for schedule(dynamic)
    for (int b = 0; b < batch; b++) {
        const float* score = scores + (size_t)b * most_frames * most_tokens;
        long long* out = path + (size_t)b * most_frames;
        int n = tokens[b], t = frames[b];
        if (n == 0) continue;
        float* best = malloc(n * sizeof(float));
        unsigned char* advanced = calloc((size_t)t * n, 1);
        for (int j = 0; j < n; j++) best[j] = -INFINITY;
        best[0] = score[0];
        for (int i = 1; i < t; i++) {
            const float* row = score + (size_t)i * most_tokens;
            for (int j = (i < n - 1 ? i : n - 1); j >= 0; j--) {
                float before = j > 0 ? best[j - 1] : -INFINITY;
                int advance = before > best[j];
                advanced[(size_t)i * n + j] = advance;
                best[j] = row[j] + (advance ? before : best[j]);
            }
        }
        int j = n - 1;
        for (int i = t - 1; i >= 0; i--) {
            out[i] = j;
            if (j > 0 && advanced[(size_t)i * n + j]) j--;
        }
        free(best); free(advanced);
    }
}
"""


class Host:
    def __init__(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "search.c").write_text(SOURCE)
        subprocess.run(["cc", "-O3", "-fopenmp", "-shared", "-fPIC", "search.c", "-o", "search.so", "-lm"], cwd=folder, check=True)
        self.function = ctypes.CDLL(folder / "search.so").search

    def __call__(self, mean, batch):
        mean, mel = mean.detach().float().flatten(0, -2), batch.mel.flatten(0, -2)
        tokens, frames = (rows_of(axis, len(rows)) for axis, rows in ((batch.text, mean), (batch.frames, mel)))
        laid = mean[tokens]
        # Up to a term that is the same on every path.
        table = (mel[frames] @ laid.transpose(1, 2) - 0.5 * laid.square().sum(2)[:, None]).cpu()
        path = torch.empty(table.shape[:2], dtype=torch.int64)
        lens = [axis.lens.cpu() for axis in (batch.text, batch.frames)]
        at = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        self.function(at(table), at(lens[0]), at(lens[1]), at(path), len(table), *table.shape[1:])
        path = path.to(mean.device) + batch.text.starts[:, None]
        inside = torch.arange(path.shape[1], device=path.device)[None] < batch.frames.lens[:, None]
        found = torch.zeros(len(mel), dtype=torch.int64, device=path.device)
        found[frames[inside]] = path[inside]
        return found.view(batch.mel.shape[:-1])


def rows_of(axis, count):
    """`[utterances, longest]`: the rows of each; any row behind its end."""
    return (axis.starts[:, None] + torch.arange(axis.longest, device=axis.starts.device)).clamp(max=count - 1)


class Triton:
    def __init__(self):
        from search_triton import search
        self.search = search

    def __call__(self, mean, batch):
        return self.search(mean.detach(), batch)


SEARCHES = {"host": Host, "triton": Triton}
