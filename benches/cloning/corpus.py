#!/usr/bin/env python3
"""Corpora for training and for measuring clones: no test speaker is ever trained on.

  corpus.py CORPORA OUT [--librispeech DIR] [--choose N M] [--kbps 24]

CORPORA holds the folders `commonvoice_en`, `commonvoice_en_more`, `libri`, `lj` and `kathleen`; DIR is LibriSpeech's
`test-clean`. Writes into OUT, every clip as Ogg Opus at 24 kHz:
- `train/manifest.jsonl` and `train/clips/`: all speech but that of the speakers in `test-speakers.txt` beside this file,
- `test/refs/`, `test/recorded/`: a reference and the recorded sentences of each test speaker,
- `test/batch.jsonl`: what `myxtts synth --batch` is to say after each reference,
- `test/recorded.jsonl`: the recordings as a list for a program that scores clones.
`--choose N M` writes `test-speakers.txt` anew: N speakers of `commonvoice_en`, M of `commonvoice_en_more`.
"""
import argparse, csv, hashlib, json, os, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np, soundfile as sf, soxr

RATE = 24000
SENTENCES = 3
# Others measure on these.
NEVER = {"2416", "460", "1737", "7312"}
NAMES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "test-speakers.txt")

def rows(corpora, librispeech):
    """(corpus, speaker, path, text) of every clip there is."""
    at = lambda *parts: os.path.join(corpora, *parts)
    for row in csv.DictReader(open(at("commonvoice_en", "validated.tsv"), encoding="utf8"), delimiter="\t", quoting=csv.QUOTE_NONE):
        yield "commonvoice_en", row["client_id"], at("commonvoice_en", "clips", row["path"]), row["sentence"]
    for line in open(at("commonvoice_en_more", "manifest.jsonl"), encoding="utf8"):
        row = json.loads(line)
        yield "commonvoice_en_more", row["speaker"], at("commonvoice_en_more", row["audio_filepath"]), row["text"]
    for line in open(at("libri", "metadata.csv"), encoding="utf8"):
        path, speaker, text = line.rstrip("\n").split("|")
        yield "libri", speaker, at("libri", path), text
    for name in ("lj", "kathleen"):
        for line in open(at(name, "metadata.csv"), encoding="utf8"):
            cols = line.rstrip("\n").split("|")
            yield name, name, at(name, "wavs", cols[0] + ".ogg"), cols[-1]
    for folder, _, files in sorted(os.walk(librispeech)) if librispeech else ():
        for name in sorted(f for f in files if f.endswith(".trans.txt")):
            for line in open(os.path.join(folder, name), encoding="utf8"):
                clip, text = line.rstrip("\n").split(" ", 1)
                yield "librispeech", clip.split("-")[0], os.path.join(folder, clip + ".flac"), text.lower()

def seconds(path):
    info = sf.info(path)
    return info.frames / info.samplerate

def shuffled(names):
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())

def encode(job):
    source, target, kbps = job
    if not os.path.exists(target):
        x, rate = sf.read(source, dtype="float32", always_2d=True)
        x = x.mean(1)
        if rate != RATE: x = soxr.resample(x, rate, RATE)
        # libsndfile takes a share of the bit rates that Opus has, 6 to 256 kbit/s.
        level = 1 - (kbps - 6) / 250
        with sf.SoundFile(target + ".part", "w", RATE, 1, format="OGG", subtype="OPUS", compression_level=level) as out:
            for start in range(0, len(x), RATE): out.write(x[start:start + RATE])
        os.rename(target + ".part", target)
    return target, seconds(target)

def write(path, lines):
    with open(path, "w", encoding="utf8") as out: out.writelines(json.dumps(l, ensure_ascii=False) + "\n" for l in lines)

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpora"); ap.add_argument("out"); ap.add_argument("--librispeech")
    ap.add_argument("--choose", nargs=2, type=int); ap.add_argument("--kbps", type=float, default=24); ap.add_argument("--jobs", type=int, default=2)
    a = ap.parse_args()
    clips = [row for row in rows(a.corpora, a.librispeech) if row[1] not in NEVER]
    by = {}
    for corpus, speaker, path, text in clips: by.setdefault(f"{corpus}/{speaker}", []).append((path, text))
    if a.choose:
        enough = lambda corpus: [n for n, c in by.items() if n.startswith(corpus + "/") and len(c) > SENTENCES
                                 and sum(3 <= seconds(p) <= 10 for p, _ in c) > SENTENCES]
        chosen = [n for corpus, count in zip(("commonvoice_en", "commonvoice_en_more"), a.choose) for n in shuffled(enough(corpus))[:count]]
        open(NAMES, "w").write("".join(n + "\n" for n in sorted(chosen)))
    test = [line.strip() for line in open(NAMES) if line.strip()]
    for folder in ("train/clips", "test/refs", "test/recorded"): os.makedirs(os.path.join(a.out, folder), exist_ok=True)
    at = lambda *parts: os.path.join(a.out, *parts)
    jobs, batch, recorded, manifest = [], [], [], []
    for name in test:
        fit = [(p, t) for p, t in by[name] if 3 <= seconds(p) <= 10]
        fit.sort(key=lambda c: abs(seconds(c[0]) - 6))
        speaker = name.replace("/", "-")
        reference = f"refs/{speaker}.opus"
        jobs.append((fit[0][0], at("test", reference), 48))
        for number, (path, text) in enumerate(shuffled_clips(fit[1:])[:SENTENCES]):
            own = f"recorded/{speaker}_{number}.opus"
            jobs.append((path, at("test", own), 48))
            batch.append(dict(id=f"{speaker}_{number}", text=text, language="en", reference=reference))
            recorded.append(dict(audio=own, reference=reference, speaker=speaker, text=text))
    write(at("test", "batch.jsonl"), batch); write(at("test", "recorded.jsonl"), recorded)
    held = {p for n in test for p, _ in by[n]}
    for corpus, speaker, path, text in clips:
        if path in held: continue
        stem = os.path.splitext(os.path.basename(path))[0]
        own = f"clips/{corpus}-{stem}.opus"
        jobs.append((path, at("train", own), a.kbps))
        manifest.append(dict(audio_filepath=own, text=text, speaker=f"{corpus}/{speaker}", language="en"))
    with ProcessPoolExecutor(a.jobs) as pool: lasting = dict(pool.map(encode, jobs, chunksize=32))
    for row in manifest: row["duration"] = round(lasting[at("train", row["audio_filepath"])], 3)
    write(at("train", "manifest.jsonl"), manifest)
    print(f"{len(manifest)} clips, {sum(r['duration'] for r in manifest) / 3600:.2f} h, {len({r['speaker'] for r in manifest})} speakers; "
          f"{len(test)} test speakers, {len(batch)} sentences")

def shuffled_clips(clips):
    return sorted(clips, key=lambda c: hashlib.sha256(os.path.basename(c[0]).encode()).hexdigest())

if __name__ == "__main__": main()
