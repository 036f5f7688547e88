#!/usr/bin/env bash
# Everything that a build needs and a machine may lack. Says what it does; safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; say "hint: $2"; exit 1; }

command -v cargo >/dev/null || die "cargo not found" "install Rust 1.90 or newer from your distribution or with rustup"
command -v c++ >/dev/null || command -v g++ >/dev/null || die "no C++ compiler found" "install one (Debian and Ubuntu: apt install g++)"
scripts/libtorch.sh

# espeak-ng renders the sample corpus. Without it a small built-in synthesiser does, so a failure here stops nothing.
if ! command -v espeak-ng >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  say "installing espeak-ng for the sample corpus"
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq espeak-ng) >/dev/null 2>&1 ||
    say "espeak-ng could not be installed; the sample corpus will use the built-in synthesiser"
fi
