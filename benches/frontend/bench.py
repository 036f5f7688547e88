"""Measures the front end and its peers, prints one table and writes it as JSON.

Settings come from the environment; run.sh lists them.
"""
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measure import run, run_json
from table import Table

HERE = Path(__file__).parent
BIN = os.environ.get("MYXTTS", "target/release/myxtts")
CLOCKS = os.environ.get("CLOCKS", "target/release/examples/frontend")
WORK = Path(os.environ.get("WORK", "target/bench-frontend"))
CLIPS = int(os.environ.get("CLIPS", "1310"))
REPEATS = int(os.environ.get("REPEATS", "3"))
ROWS = [int(rows) for rows in os.environ.get("ROWS", "1000 10000 100000").split()]
LOUDNESS = os.environ.get("LOUDNESS", "0")
PARTS = os.environ.get("PARTS", "prepare decode warm text memory").split()
SENTENCES = 13100
PEERS = {"librosa": 10, "torchaudio": 4}  # how many times faster we mean to be, per core
CORES = sorted(os.sched_getaffinity(0))


def settings(corpus, content, workers):
    """A config file for one run. The features lie beside it and are deleted with every cold run."""
    path = WORK / f"{content}.yaml"
    path.write_text("\n".join([
        "data:",
        f"  dataset_path: {corpus.resolve()}",
        f"  cache_dir: {(WORK / 'features').resolve()}",
        f"  cache_content: {content}",
        f"  normalize_audio: {'true' if LOUDNESS == '1' else 'false'}",
        "  tokenizer: characters",
        f"  num_workers: {workers}",
    ]) + "\n")
    return path


def cold(corpus, content, cores):
    """`myxtts prepare` into an empty folder, from the start of the process to its end, files synced."""
    shutil.rmtree(WORK / "features", ignore_errors=True)
    return prepare(corpus, content, cores)


def prepare(corpus, content, cores):
    config = settings(corpus, content, len(cores))
    done = run([BIN, "prepare", corpus, "--config", config, "--json"], cores)
    report = json.loads(done.output)["cache"]
    if report["failures"]:
        sys.exit(f"error: {corpus}: {len(report['failures'])} clips failed; the first: {report['failures'][0]}")
    return done


def peer(name, corpus, content, cores):
    command = [sys.executable, HERE / "peers.py", name, corpus, len(cores), content, LOUDNESS]
    return run_json(command, cores)["seconds"]


def clips_of(corpus):
    return json.loads((corpus / "made.json").read_text())["clips"]


def median(values):
    return statistics.median(values)


def measure_prepare(table, corpora):
    start = median([run([BIN, "--version"], CORES[:1]).seconds * 1e3 for _ in range(max(REPEATS, 5))])
    table.add("1 core: process start, part of every prepare below", start, "ms")
    for cores in ([CORES[:1], CORES] if len(CORES) > 1 else [CORES]):
        for corpus in corpora:
            seconds = {}
            peak_mib = 0
            for _ in range(REPEATS):  # in turn, so that a slow minute of the machine falls on all alike
                for content in ("pcm", "mel"):
                    ours = cold(corpus, content, cores)
                    peak_mib = max(peak_mib, ours.peak_mib)
                    seconds.setdefault(("ours", content), []).append(ours.seconds)
                    for name in PEERS:
                        seconds.setdefault((name, content), []).append(peer(name, corpus, content, cores))
            report_prepare(table, corpus, cores, seconds)
            table.add(f"{corpus.name}, {where(cores)}: peak memory of prepare", peak_mib, "MiB", goal_below=500)
    if len(CORES) > 1:
        for corpus in corpora:
            for content in ("pcm", "mel"):
                rate = [table.value(label(corpus, cores, content, "librosa", content)) for cores in (CORES[:1], CORES)]
                table.add(f"{corpus.name}, {content}: {len(CORES)} cores against 1", rate[1], "clips/s",
                          peer=("1 core", rate[0]), more_is_better=True)


def report_prepare(table, corpus, cores, seconds):
    clips = clips_of(corpus)
    rate = {key: clips / median(values) for key, values in seconds.items()}
    for name, goal in PEERS.items():
        for content, theirs in (("pcm", "pcm"), ("pcm", "mel"), ("mel", "mel")):
            table.add(label(corpus, cores, content, name, theirs), rate["ours", content], "clips/s",
                      peer=(f"{name} to {theirs}", rate[name, theirs]), more_is_better=True, goal_ratio=goal,
                      spread=[clips / value for value in seconds["ours", content]],
                      peer_spread=[clips / value for value in seconds[name, theirs]])


def label(corpus, cores, content, name, theirs):
    return f"{corpus.name}, {where(cores)}: prepare to {content} / {name} to {theirs}"


def where(cores):
    return "1 core" if len(cores) == 1 else f"{len(cores)} cores"


def measure_decode(table, corpora):
    corpus, cores = corpora[0], CORES[:1]
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(run_json([CLOCKS, "decode", corpus / "wavs", len(cores)], cores)["seconds"])
        theirs.append(peer("soundfile", corpus, "pcm", cores))
    clips = clips_of(corpus)
    table.add(f"{corpus.name}, 1 core: decode alone", clips / median(ours), "clips/s",
              peer=("soundfile", clips / median(theirs)), more_is_better=True)


def measure_warm(table, corpora):
    corpus = corpora[0]
    for content in ("pcm", "mel"):
        cold(corpus, content, CORES)
        again = [prepare(corpus, content, CORES).seconds * 1e3 for _ in range(max(REPEATS, 5))]
        config = settings(corpus, content, len(CORES))
        run_json([CLOCKS, "open", config], CORES)  # `train` keeps a list of its own part of the corpus: made here
        opened = [run_json([CLOCKS, "open", config], CORES) for _ in range(max(REPEATS, 5))]
        if any(one["built"] for one in opened):
            sys.exit(f"error: {corpus}: a warm cache was built again")
        rows = f"{clips_of(corpus):,} clips, {content}"
        table.add(f"{rows}: warm open of the cache", median([one["open_ms"] for one in opened]), "ms", goal_below=50)
        table.add(f"{rows}: first batch, metadata and text included", median([one["first_batch_ms"] for one in opened]),
                  "ms", goal_below=200)
        table.add(f"{rows}: `myxtts prepare` again, whole process", median(again), "ms")


def measure_text(table, source):
    make("--text", source, SENTENCES)
    sentences = WORK / f"sentences-{SENTENCES}.txt"
    seconds = [run_json([CLOCKS, "text", sentences], CORES[:1])["seconds"] for _ in range(max(REPEATS, 5))]
    table.add(f"1 core: normalise, detect, tokenise {SENTENCES:,} sentences", median(seconds), "s", goal_below=1)


def measure_memory(table, source):
    peaks = []
    for rows in ROWS:
        make("--short", source, rows)
        done = cold(WORK / f"rows-{rows}", "pcm", CORES)
        peaks.append(done.peak_mib)
        table.add(f"{rows:,} rows: peak memory of prepare", done.peak_mib, "MiB", goal_below=500)
        table.add(f"{rows:,} rows: of that not backed by files", done.peak_anonymous_mib, "MiB")
        config = settings(WORK / f"rows-{rows}", "pcm", len(CORES))
        opened = [run_json([CLOCKS, "cache", config], CORES) for _ in range(max(REPEATS, 5))]
        if any(one["built"] for one in opened):
            sys.exit(f"error: {rows} rows: a warm cache was built again")
        table.add(f"{rows:,} rows: warm open of the cache", median([one["open_ms"] for one in opened]), "ms",
                  goal_below=50)
        metadata_ms = median([one["metadata_ms"] + one["tokenizer_ms"] for one in opened])
        table.add(f"{rows:,} rows: metadata and tokenizer before it", metadata_ms, "ms")
    if len(ROWS) > 1:
        grown = (peaks[-1] - peaks[0]) * 1024 / (ROWS[-1] - ROWS[0])
        table.add(f"growth from {ROWS[0]:,} to {ROWS[-1]:,} rows, a row", grown, "KiB")


def make(mode, source, clips):
    command = [sys.executable, HERE / "corpus.py", source, WORK, clips] + ([mode] if mode else [])
    subprocess.run([str(part) for part in command], check=True)


def source_corpus():
    if os.environ.get("CORPUS"):
        return Path(os.environ["CORPUS"]), "clips of the corpus that CORPUS names"
    folder = WORK / "sample"
    run([BIN, "sample-corpus", folder, "--clips", "200", "--voice", "formant"], CORES)
    return folder, "clips of `myxtts sample-corpus`, formant voice"


def machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {"cpu": name, "cores": len(CORES), "memory_gib": round(memory_kib / 2**20),
            "kernel": platform.release(), "python": platform.python_version()}


def read_once(corpora):
    """Everyone reads from the page cache: the disk is not what is compared."""
    for corpus in corpora:
        for path in (corpus / "wavs").iterdir():
            path.read_bytes()


def main():
    for program in (BIN, CLOCKS):
        if not Path(program).exists():
            sys.exit(f"error: {program}: not built\nhint: `make bench-frontend` builds it")
    WORK.mkdir(parents=True, exist_ok=True)
    source, said = source_corpus()
    make(None, source, CLIPS)
    corpora = [WORK / "corpus-22050", WORK / "corpus-24000"]
    hours = sum(path.stat().st_size for path in (corpora[0] / "wavs").iterdir()) / 2 / 22050 / 3600
    loudness = "on" if LOUDNESS == "1" else "off"
    method = (f"{CLIPS:,} clips ({hours:.2f} h) cut from {said}; median of {REPEATS}, in turn; loudness {loudness} on "
              "both sides; files in the page cache; ours with process start, hashing and writing, peers without start-up "
              "and without writing")
    table = Table(machine(), method)
    read_once(corpora)
    parts = {"prepare": lambda: measure_prepare(table, corpora), "decode": lambda: measure_decode(table, corpora),
             "warm": lambda: measure_warm(table, corpora), "text": lambda: measure_text(table, source),
             "memory": lambda: measure_memory(table, source)}
    for part in PARTS:
        if part not in parts:
            sys.exit(f"error: PARTS: no part {part}\nhint: of {' '.join(parts)}")
        print(f"measuring: {part}", file=sys.stderr)
        parts[part]()
    shutil.rmtree(WORK / "features", ignore_errors=True)
    table.print()
    table.write(WORK / "figures.json")


main()
