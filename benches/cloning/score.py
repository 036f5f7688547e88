#!/usr/bin/env python3
"""Lists for a program that scores clones, and how fast they speak.

  score.py TEST FOLDER [SCORER …]

TEST is `test/` of corpus.py, FOLDER what `myxtts synth --batch TEST/batch.jsonl -o FOLDER` made. Writes FOLDER/list.jsonl, with
lines {"audio", "reference", "speaker", "text"}, prints the length of clones relative to the recordings of the same sentences
(silence at the ends trimmed), and how far a speaker's pace is followed: the correlation over speakers of log letters a
second, clones with recordings. SCORER is run with the list as its last argument.
"""
import json, os, subprocess, sys
import numpy as np, soundfile as sf

def spoken_s(path):
    x, rate = sf.read(path, dtype="float32")
    hop = rate // 100
    level = np.abs(x[: len(x) // hop * hop]).reshape(-1, hop).max(1)
    loud = np.flatnonzero(level > 0.02 * level.max())
    return (loud[-1] - loud[0] + 1) / 100

def main():
    test, folder, scorer = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    rows, pace = [], {}
    for line in open(os.path.join(test, "recorded.jsonl"), encoding="utf8"):
        row = json.loads(line)
        stem = os.path.splitext(os.path.basename(row["audio"]))[0]
        made = next((p for p in (os.path.join(folder, stem + e) for e in (".flac", ".wav", ".opus", ".ogg")) if os.path.exists(p)), None)
        if not made: continue
        both = spoken_s(os.path.join(test, row["audio"])), spoken_s(made)
        letters = sum(c.isalpha() for c in row["text"])
        pace.setdefault(row["speaker"], []).append([np.log(letters / s) for s in both] + list(both))
        rows.append({**row, "audio": made, "reference": os.path.join(test, row["reference"])})
    out = os.path.join(folder, "list.jsonl")
    open(out, "w", encoding="utf8").writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    each = np.array([np.mean(v, 0) for v in pace.values()])
    print(json.dumps(dict(clips=len(rows), length=round(float(each[:, 3].sum() / each[:, 2].sum()), 3),
                          pace_correlation=round(float(np.corrcoef(each[:, 0], each[:, 1])[0, 1]), 3))), flush=True)
    if scorer: sys.exit(subprocess.call(scorer + [out]))

if __name__ == "__main__": main()
