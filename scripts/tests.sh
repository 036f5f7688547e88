#!/usr/bin/env bash
# Runs a command that tests, and says how many of its tests could not be run here: they write lines that begin with
# SKIPPED, past the harness. `MYXTTS_SKIPS=0 make test` fails where there is any.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>&1 | tee "$log"
skipped=$(grep -c '^SKIPPED ' "$log" || true)
[ "$skipped" = 0 ] && exit 0
printf '%s tests were SKIPPED:\n' "$skipped" >&2
grep '^SKIPPED ' "$log" | sort >&2
[ "$skipped" -le "${MYXTTS_SKIPS:-$skipped}" ]
