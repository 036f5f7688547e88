#!/usr/bin/env bash
# Gets LibTorch and points `.libtorch` in this clone at it. Safe to run again: it does only what is missing.
#
#   scripts/libtorch.sh          CPU library and CUDA headers (about 540 MB to download, once for all clones)
#   CUDA=1 scripts/libtorch.sh   also the CUDA libraries (about 2 GB more); the default where an NVIDIA driver is found
#   LIBTORCH=DIR …               uses that LibTorch 2.11 instead; so does an active Python with torch 2.11
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.11.0
cuda_version=13.0
say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; say "hint: $2"; exit 1; }

python=$(command -v python3 || command -v python) || die "Python 3 not found" "install Python 3.8 or newer, with pip"

has_driver() { [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null; }
if [ -z "${CUDA:-}" ]; then CUDA=0; if has_driver; then CUDA=1; fi; fi

# The header says which LibTorch a folder holds; wheels and zip archives both have it.
version_in() {
  local header="$1/include/torch/headeronly/version.h"
  [ -e "$header" ] || return 0
  awk '/#define TORCH_VERSION_(MAJOR|MINOR)/ { v = v (v ? "." : "") $3 } END { print v }' "$header"
}

# .libtorch/lib leaves libtorch_cuda out on purpose: what is not there at link time is loaded at run time, where there is one.
point_at() {
  local torch=$1 fresh name
  fresh=$(mktemp -d .libtorch.XXXXXX)
  mkdir "$fresh/lib"
  ln -s "$torch" "$fresh/torch"
  ln -s "$torch/include" "$fresh/include"
  for name in libtorch_cpu.so libc10.so; do
    [ -e "$torch/lib/$name" ] || die "$torch/lib/$name is not there" "unset LIBTORCH to have LibTorch fetched"
    ln -s "$torch/lib/$name" "$fresh/lib/$name"
  done
  ln -s "$torch/lib/libtorch_cpu.so" "$fresh/lib/libtorch.so"   # the real one does nothing but pull in libtorch_cuda
  if [ -L .libtorch/torch ] && [ "$(readlink .libtorch/torch)" = "$torch" ]; then
    rm -rf "$fresh"   # unchanged: keep the old links, so that cargo sees nothing new
  else
    rm -rf .libtorch
    mv "$fresh" .libtorch
  fi
  say "LibTorch $version: $torch"
}

if [ -n "${LIBTORCH:-}" ]; then
  found=$(version_in "$LIBTORCH")
  [ "$found" = "${version%.*}" ] || die "LIBTORCH=$LIBTORCH holds ${found:-no LibTorch}, and this project needs ${version%.*}" \
    "unset LIBTORCH to have it fetched"
  point_at "$(cd "$LIBTORCH" && pwd -P)"
  exit
fi

own=$("$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' 2>/dev/null || true)
if [ -n "$own" ] && [ "$(version_in "$own")" = "${version%.*}" ]; then
  say "using the torch of this Python"
  point_at "$own"
  exit
fi

site="${XDG_CACHE_HOME:-$HOME/.cache}/myxtts/libtorch-$version"
stamp="$site/.complete-cuda$CUDA"
if [ ! -e "$stamp" ]; then
  mkdir -p "$site" || die "cannot write to $site" "set XDG_CACHE_HOME to a folder that you may write to"
  exec 9>"$site/.lock"
  flock 9   # two clones at once: one fetches, the other waits
  if [ ! -e "$stamp" ]; then
    "$python" -m pip --version >/dev/null 2>&1 || die "pip not found for $python" "install it (Debian and Ubuntu: apt install python3-pip)"
    [ "$CUDA" = 1 ] && what="with the CUDA libraries" || what="CPU library and CUDA headers"
    say "fetching LibTorch $version ($what) into $site"
    "$python" scripts/wheels.py "$site" "$site/.downloads" "$CUDA" "torch==$version" \
      "nvidia-cuda-runtime==$cuda_version.*" "nvidia-cuda-cupti==$cuda_version.*" \
      "nvidia-cuda-crt==$cuda_version.*" "nvidia-cuda-cccl==$cuda_version.*"
    touch "$site/.complete-cuda0" "$stamp"
  fi
fi
point_at "$site/torch"
