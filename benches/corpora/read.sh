#!/usr/bin/env bash
# Shards to decoded samples: ours, `webdataset` and `datasets` on the same shards and cores. docs/corpora.md says how.
#
#   CLIPS=N       clips to make shards of                 [default: 2000]
#   CORPUS=DIR    real clips, LJSpeech layout             [default: `myxtts sample-corpus`, formant voice]
#   WORK=DIR      where shards are made                   [default: target/bench-corpora]
#   REPEATS=N     runs of each figure; the median counts  [default: 3]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
say() { printf '%s\n' "$*" >&2; }

home="${XDG_CACHE_HOME:-$HOME/.cache}/myxtts/bench-corpora-python"
complete="$home/.complete-$(cksum < "$here/requirements.txt" | cut -d' ' -f1)"
if [ ! -e "$complete" ]; then
  mkdir -p "$home"
  exec 9>"$home/.lock"
  flock 9   # two runs at once: one fetches, the other waits
  say "fetching webdataset, datasets and soundfile into $home (about 100 MB)"
  [ -x "$home/bin/pip" ] || python3 -m venv "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  touch "$complete"
fi
exec "$home/bin/python" "$here/read.py"
