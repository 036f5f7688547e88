"""Makes the corpora of the benchmark: LJSpeech-like clips from real or sample ones, each with its own crop and gain.

    corpus.py SOURCE WORK CLIPS          WORK/corpus-22050 and WORK/corpus-24000, the same clips at two rates
    corpus.py SOURCE WORK CLIPS --short  WORK/rows-CLIPS: short clips with contents of their own, to count rows with
    corpus.py SOURCE WORK CLIPS --text   WORK/sentences-CLIPS.txt: as many sentences, without sound

SOURCE is a folder in the LJSpeech layout. The same arguments give the same bytes; a corpus that is there is kept.
"""
import json
import shutil
import sys
import wave
from pathlib import Path

import numpy as np
import soundfile
import soxr

SEED = 3
RATES_HZ = (22050, 24000)
# LJSpeech: 1.1 to 10.1 s, mean 6.57 s, deviation 2.18 s, as a beta distribution with those moments.
SHORTEST_S, LONGEST_S, BETA = 1.1, 10.1, (1.86, 1.20)
SHORT_S = 0.25
CHARACTERS_PER_S = 15
# What a normaliser has to expand is in one sentence of three.
SPICE = ["In {y}, Dr. Smith paid ${n}.50 for {n} lbs of tea.", "It was {n}% full at 4:{m:02} p.m. on May {d}, {y}.",
         "The {d}th of {n},{y} men stood {n} km from No. {d}."]


def source_clips(folder):
    """[(samples at the first rate, text)], at most some 20 minutes: the rest would only cost memory."""
    rows = [line.split("|") for line in (folder / "metadata.csv").read_text(encoding="utf-8-sig").splitlines() if line]
    clips = []
    for row in rows[:400]:
        path = folder / "wavs" / f"{row[0]}.wav"
        if path.exists():
            samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
            clips.append((soxr.resample(samples.mean(axis=1), rate_hz, RATES_HZ[0]), row[-1].strip()))
    if not clips:
        sys.exit(f"error: {folder}: no clips\nhint: CORPUS names a folder with metadata.csv and wavs/*.wav")
    return clips


def sentence(random, texts, seconds):
    words = []
    if random.integers(3) == 0:
        numbers = {"y": random.integers(1700, 2020), "n": random.integers(2, 900), "m": random.integers(60),
                   "d": random.integers(4, 20)}
        words.append(SPICE[random.integers(len(SPICE))].format(**numbers))
    while sum(map(len, words)) < seconds * CHARACTERS_PER_S:
        words.append(texts[random.integers(len(texts))])
    return " ".join(words).replace("|", " ")


def write_wav(path, samples, rate_hz):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def is_made(folder, about):
    marker = folder / "made.json"
    return marker.exists() and json.loads(marker.read_text()) == about


def make(folder, about, speech, texts, rate_hz, lengths_s):
    if is_made(folder, about):
        return
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "wavs").mkdir(parents=True)
    random = np.random.default_rng(SEED)
    with open(folder / "metadata.csv", "w", encoding="utf-8") as metadata:
        for number, seconds in enumerate(lengths_s):
            # Seconds, not samples, are drawn: both rates get the same clips.
            start_s = random.uniform(0, len(speech) / rate_hz - seconds)
            start, gain = int(start_s * rate_hz), random.uniform(0.3, 0.95)
            samples = speech[start:start + int(seconds * rate_hz)] * gain
            write_wav(folder / "wavs" / f"clip{number:06}.wav", samples, rate_hz)
            metadata.write(f"clip{number:06}|{sentence(random, texts, seconds)}\n")
    (folder / "made.json").write_text(json.dumps(about))


def write_sentences(path, source, lengths_s):
    random = np.random.default_rng(SEED)
    texts = [text for _, text in source_clips(source)]
    path.write_text("".join(sentence(random, texts, seconds) + "\n" for seconds in lengths_s), encoding="utf-8")


def main():
    source, work, clips = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    short = "--short" in sys.argv
    low, high = SHORTEST_S, LONGEST_S
    lengths_s = low + (high - low) * np.random.default_rng(SEED).beta(*BETA, size=clips)
    wanted = [(work / f"rows-{clips}", RATES_HZ[0])] if short else [(work / f"corpus-{r}", r) for r in RATES_HZ]
    about = {"clips": clips, "seed": SEED, "short": short, "source": str(source.resolve())}
    if "--text" in sys.argv:
        write_sentences(work / f"sentences-{clips}.txt", source, lengths_s)
        return
    if all(is_made(folder, about) for folder, _ in wanted):
        return
    found = source_clips(source)
    texts = [text for _, text in found]
    speech = np.concatenate([samples for samples, _ in found])
    speech /= np.abs(speech).max()
    speech = np.tile(speech, int(np.ceil(3 * LONGEST_S * RATES_HZ[0] / len(speech))))
    for folder, rate_hz in wanted:
        at_rate = speech if rate_hz == RATES_HZ[0] else soxr.resample(speech, RATES_HZ[0], rate_hz)
        make(folder, about, at_rate, texts, rate_hz, np.full(clips, SHORT_S) if short else lengths_s)


main()
