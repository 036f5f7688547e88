#!/usr/bin/env bash
# Everything that a build needs and a machine may lack. Says what it does; safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; say "hint: $2"; exit 1; }

command -v cargo >/dev/null || die "cargo not found" "install Rust 1.90 or newer from your distribution or with rustup"
command -v c++ >/dev/null || command -v g++ >/dev/null || die "no C++ compiler found" "install one (Debian and Ubuntu: apt install g++)"
scripts/libtorch.sh

scripts/espeak.sh
