"""Reads the same shards to decoded samples with MyXTTS, `webdataset` and `datasets`, and prints ratios.

Peers get a process for each core, each with its share of the shards, and decode with libsndfile through `soundfile`, which is
faster than what they decode with by themselves. Every program reads the shards once to get them into the page cache.
"""

import glob, io, json, os, statistics, subprocess, sys, tarfile, time
from multiprocessing import get_context

WORK = os.environ.get("WORK", "target/bench-corpora")
CLIPS = int(os.environ.get("CLIPS", "2000"))
REPEATS = int(os.environ.get("REPEATS", "3"))
TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
CORES = len(os.sched_getaffinity(0))
SHARDS = 2 * CORES


def corpus():
    if "CORPUS" in os.environ:
        return os.environ["CORPUS"]
    path = f"{WORK}/corpus-{CLIPS}"
    program = [f"{TARGET}/release/myxtts", "sample-corpus", path, "--clips", str(CLIPS), "--voice", "formant"]
    subprocess.run(program, check=True, stderr=subprocess.DEVNULL)
    return path


def shards(path):
    """FLAC clips with JSON in tars, and the same in parquet."""
    import pyarrow as pa, pyarrow.parquet as pq, soundfile as sf
    rows = [line.rstrip("\n").split("|") for line in open(f"{path}/metadata.csv", encoding="utf-8")][:CLIPS]
    out = f"{WORK}/shards-{len(rows)}-{SHARDS}"
    if os.path.exists(f"{out}/done"):
        return out
    for kind in ("tar", "parquet"):
        os.makedirs(f"{out}/{kind}", exist_ok=True)
    for number in range(SHARDS):
        clips = []
        for row in rows[number::SHARDS]:
            samples, rate = sf.read(f"{path}/wavs/{row[0]}.wav", dtype="int16")
            flac = io.BytesIO()
            sf.write(flac, samples, rate, format="FLAC")
            clips.append((row[0], flac.getvalue(), row[-1]))
        with tarfile.open(f"{out}/tar/{number:04}.tar", "w") as tar:
            for key, flac, text in clips:
                for ending, data in (("flac", flac), ("json", json.dumps({"text": text}).encode())):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        audio = pa.array([{"bytes": flac, "path": f"{key}.flac"} for key, flac, _ in clips],
                         pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
        table = pa.table({"audio": audio, "text": [text for *_, text in clips]})
        pq.write_table(table, f"{out}/parquet/{number:04}.parquet", row_group_size=100)
    open(f"{out}/done", "w").close()
    return out


def decode(data):
    import soundfile as sf
    samples, rate = sf.read(io.BytesIO(data), dtype="float32")
    return len(samples) / rate


def webdataset(files):
    import webdataset as wds
    return sum(decode(sample["flac"]) for sample in wds.WebDataset(files, shardshuffle=False, empty_check=False))


def datasets_tar(files):
    import datasets
    rows = datasets.load_dataset("webdataset", data_files=files, split="train", streaming=True)
    rows = rows.cast_column("flac", datasets.Audio(decode=False))
    return sum(decode(row["flac"]["bytes"]) for row in rows)


def datasets_parquet(files):
    import datasets
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    return sum(decode(row["audio"]["bytes"]) for row in rows)


def peer(read, files):
    """Seconds, less what it takes to start the processes and import the packages, and seconds of sound."""
    with get_context("spawn").Pool(CORES) as pool:
        pool.map(warm, range(CORES), chunksize=1)
        start = time.perf_counter()
        sound = sum(pool.map(read, [files[part::CORES] for part in range(CORES)], chunksize=1))
        return time.perf_counter() - start, sound


def warm(_):
    import datasets, soundfile, webdataset
    time.sleep(0.5)


def ours(folder):
    told = subprocess.run([f"{TARGET}/release/examples/shards", folder, str(CORES)], check=True, capture_output=True)
    told = json.loads(told.stdout)
    return told["seconds"], told["audio_seconds"]


def median(measure):
    runs = [measure() for _ in range(REPEATS + 1)][1:]
    return statistics.median(seconds for seconds, _ in runs), runs[0][1]


def main():
    out = shards(corpus())
    print(f"{CORES} cores; {SHARDS} shards of FLAC; median of {REPEATS} runs after one that warms the page cache")
    for kind, peers in (("tar", {"webdataset": webdataset, "datasets": datasets_tar}), ("parquet", {"datasets": datasets_parquet})):
        files = sorted(glob.glob(f"{out}/{kind}/*.{kind}"))
        own, sound = median(lambda: ours(f"{out}/{kind}"))
        print(f"{kind}: myxtts {own:.2f} s, {sound / own:.0f} seconds of sound a second")
        for name, read in peers.items():
            seconds, theirs = median(lambda: peer(read, files))
            assert abs(theirs - sound) < 0.001 * sound, (name, theirs, sound)
            print(f"{kind}: {name} {seconds:.2f} s, {sound / seconds:.0f} seconds of sound a second: {seconds / own:.1f}×")


if __name__ == "__main__":
    sys.exit(main())
