#!/bin/sh
# Opening, planning and memory of corpora of many rows: benches/corpora/index.sh PROGRAM, the example `corpora`.
# Each is built first, then opened three times; a line of JSON each. Ten million rows take 8 GB on disk.
set -eu
program=$1
work=${WORK:-$(mktemp -d)}
for rows in ${ROWS:-1000 10000 100000 1000000 10000000}; do
    dir="$work/$rows"
    "$program" make "$dir" "$rows"
    sleep 3 # what was just written is not relied on yet
    start=$(date +%s)
    "$program" open "$dir" > "$work/built.json"
    seconds=$(($(date +%s) - start))
    figure() { sed "s/.*\"$1\":\([0-9]*\).*/\1/" "$work/built.json"; }
    echo "{\"rows\": $rows, \"building_s\": $seconds, \"table_mib\": $(du -cm "$dir"/cache/*/corpus-* | tail -n 1 | cut -f 1)," \
        "\"building_anonymous_peak_mib\": $(figure open_anonymous_peak_mib), \"building_peak_mib\": $(figure open_peak_mib)}"
    for _ in 1 2 3; do "$program" open "$dir"; done
    rm -rf "$dir"
done
