"""Packs a corpus into WebDataset tars: `pack.py CORPUS FOLDER HOURS`. CORPUS has a manifest.jsonl or a metadata.csv.

Clips are repeated under other names until there are so many hours: what lies at another place of a bucket is another clip.
Prints the seconds of speech.
"""

import io, json, os, sys, tarfile, wave

corpus, out, hours = sys.argv[1], sys.argv[2], float(sys.argv[3])


def rows():
    if os.path.exists(f"{corpus}/manifest.jsonl"):
        for line in open(f"{corpus}/manifest.jsonl", encoding="utf-8"):
            row = json.loads(line)
            yield f"{corpus}/{row['audio_filepath']}", row.get("duration") or seconds(f"{corpus}/{row['audio_filepath']}"), row
    else:
        for line in open(f"{corpus}/metadata.csv", encoding="utf-8"):
            cells = line.rstrip("\n").split("|")
            path = f"{corpus}/wavs/{cells[0]}.wav"
            yield path, seconds(path), {"text": cells[-1]}


def seconds(path):
    with wave.open(path) as sound:
        return sound.getnframes() / sound.getframerate()


clips = [(path, long, row) for path, long, row in rows() if os.path.exists(path)]
once = sum(long for _, long, _ in clips)
copies = max(1, round(hours * 3600 / once))
os.makedirs(out, exist_ok=True)
for copy in range(copies):
    for first in range(0, len(clips), 500):
        with tarfile.open(f"{out}/shard-{copy:03}-{first // 500:04}.tar", "w") as tar:
            for number, (path, _, row) in enumerate(clips[first:first + 500], first):
                about = json.dumps({name: row[name] for name in ("text", "speaker", "language") if name in row}).encode()
                sound = open(path, "rb").read()
                for ending, data in ((path.rsplit(".", 1)[-1], sound), ("json", about)):
                    info = tarfile.TarInfo(f"c{copy:03}-{number:06}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
print(f"{once * copies:.0f}")
