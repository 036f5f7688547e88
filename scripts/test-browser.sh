#!/usr/bin/env bash
# Installs the browser that the page of `myxtts serve` is tested in, where it may: Debian, as root. Elsewhere the test
# says that it was skipped. Safe to run again.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

command -v chromedriver >/dev/null && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  say "no chromedriver, and no right to install one: the page's test will be skipped (Debian: apt install chromium-driver)"
  exit 0
fi
say "installing Chromium for the page's test (about 100 MB)"
(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver) \
  >/dev/null 2>&1 || say "Chromium could not be installed: the page's test will be skipped"
