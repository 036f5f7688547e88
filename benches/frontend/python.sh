#!/usr/bin/env bash
# Makes the Python of the peers and prints its path. Safe to run again: it does only what is missing.
#
#   TORCH=cpu    torch for the CPU alone from PyTorch's index (about 200 MB)
#   TORCH=pypi   torch from PyPI, with the CUDA libraries that it is linked against (about 2.2 GB; 4 GB unpacked)
#                default: cpu where that index answers, pypi where it does not
set -euo pipefail
cd "$(dirname "$0")"

cpu_index=https://download.pytorch.org/whl/cpu
say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; say "hint: $2"; exit 1; }

home="${XDG_CACHE_HOME:-$HOME/.cache}/myxtts/bench-python"
pinned=$(cat requirements.txt requirements-torch.txt | cksum | cut -d' ' -f1)
if [ -e "$home/.complete-$pinned" ]; then
  echo "$home/bin/python"
  exit
fi

python=$(command -v python3) || die "Python 3 not found" "install Python 3.11 to 3.13, with pip and venv"
mkdir -p "$home" || die "cannot write to $home" "set XDG_CACHE_HOME to a folder that you may write to"
exec 9>"$home/.lock"
flock 9   # two runs at once: one fetches, the other waits
[ -x "$home/bin/pip" ] || "$python" -m venv "$home" || die "no virtual environment could be made" \
  "Debian and Ubuntu: apt install python3-venv"

index_answers() { curl --silent --fail --head --max-time 10 "$cpu_index/torch/" >/dev/null 2>&1; }
if [ -z "${TORCH:-}" ]; then TORCH=pypi; if index_answers; then TORCH=cpu; fi; fi

install() { "$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$@" >&2; }
say "fetching librosa and soundfile into $home (about 130 MB)"
install -r requirements.txt || die "the packages could not be fetched" "is the package index reachable?"
case "$TORCH" in
  cpu)
    say "fetching torch and torchaudio 2.11 for the CPU (about 200 MB)"
    install --index-url "$cpu_index" torch==2.11.0 torchaudio==2.11.0 || die "torch could not be fetched" \
      "TORCH=pypi takes it from PyPI" ;;
  pypi)
    say "fetching torch and torchaudio 2.11 with CUDA libraries from PyPI (about 2.2 GB; 4 GB on disk)"
    say "  they are not used, but this torch does not load without them; TORCH=cpu fetches 200 MB from PyTorch's index"
    install --no-deps -r requirements-torch.txt || die "torch could not be fetched" "run the same command again" ;;
  *) die "TORCH=$TORCH: not a source of torch" "cpu or pypi" ;;
esac
"$home/bin/python" -c 'import librosa, soundfile, torch, torchaudio' ||
  die "the peers do not load" "delete $home and run again"
touch "$home/.complete-$pinned"
echo "$home/bin/python"
