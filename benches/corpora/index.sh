#!/bin/sh
# Opening, planning and memory of corpora of many rows: benches/corpora/index.sh PROGRAM, the example `corpora`.
# Each is built first, then opened three times; a line of JSON each. Ten million rows take 8 GB on disk and as much memory
# to build, which is what building needs and opening does not.
set -eu
program=$1
work=${WORK:-$(mktemp -d)}
for rows in ${ROWS:-1000 10000 100000 1000000 10000000}; do
    dir="$work/$rows"
    "$program" make "$dir" "$rows"
    sleep 3 # what was just written is not relied on yet
    start=$(date +%s)
    "$program" open "$dir" > "$work/built.json"
    echo "{\"rows\": $rows, \"building_s\": $(($(date +%s) - start)), \"table_mib\": $(du -cm "$dir"/cache/*/corpus-* | tail -n 1 | cut -f 1)}"
    for _ in 1 2 3; do "$program" open "$dir"; done
    rm -rf "$dir"
done
