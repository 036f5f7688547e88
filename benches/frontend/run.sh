#!/usr/bin/env bash
# Figures of the front end as ratios to Python peers measured in the same run; docs/frontend.md says how.
#
#   make bench-frontend                 1,310 clips (2.4 h): minutes
#   make bench-frontend CLIPS=13100     24 h of speech: about 8 GB of clips, 4 GB of features at a time
#
#   CORPUS=DIR     real clips to cut from, LJSpeech layout   [default: `myxtts sample-corpus`, formant voice]
#   WORK=DIR       where corpora and features are made       [default: target/bench-frontend]
#   REPEATS=N      runs of each figure; the median counts    [default: 3]
#   ROWS="N N N"   corpus sizes for the memory figures       [default: 1000 10000 100000]
#   LOUDNESS=1     loudness normalisation, on both sides     [default: 0]
#   PARTS="…"      of: prepare decode warm text memory       [default: all]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
# One thread a worker: peers must not start threads of their own beside the workers that they are given.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=1
python=$("$here/python.sh")
exec "$python" "$here/bench.py"
