#!/usr/bin/env bash
# Phonemes and the sample corpus are espeak-ng's. Without it tokens are characters and a small built-in synthesiser speaks, so
# a failure here stops nothing.
set -euo pipefail
say() { printf '%s\n' "$*" >&2; }

if ! command -v espeak-ng >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  say "installing espeak-ng for the sample corpus"
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq espeak-ng) >/dev/null 2>&1 ||
    say "espeak-ng could not be installed; the sample corpus will use the built-in synthesiser"
fi
