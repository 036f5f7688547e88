#!/usr/bin/env bash
# Trains from a bucket, corpus and features in it and a tenth of the features on this machine; then from a folder, which has them
# all. Prints readiness and steps a second of each, and the windows of steps in which batches came late.
#
#   benches/corpora/bucket.sh CORPUS [FLAGS OF TRAIN...]     CORPUS has a manifest.jsonl or a metadata.csv
#
#   MYXTTS=FILE   the program                        [default: target/release/myxtts]
#   WORK=DIR      where everything goes              [default: a new folder in /dev/shm]
#   HOURS=H       of speech; clips are repeated      [default: 20]
#   STEPS=N       of each run                        [default: 400]
#   SIZE=NAME     of the model                       [default: small]
#   SHARDS=N      that features are built into       [default: 240; a window of a fortieth is shuffled together]
#   SERVER=own    or moto, of $PYTHON                [default: own, s3_server.py]
#   RUNS=NAMES    bucket, folder or both, repeatedly [default: "bucket folder"]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
corpus=$(realpath "$1"); shift
program=$(realpath "${MYXTTS:-target/release/myxtts}")
work=${WORK:-$(mktemp -d /dev/shm/bucket-XXXXXX)}
python=${PYTHON:-python3} shards=${SHARDS:-240} steps=${STEPS:-400}
mkdir -p "$work/s3/bucket"; cd "$work"
export XDG_CACHE_HOME=$work/cache AWS_ACCESS_KEY_ID=nobody AWS_SECRET_ACCESS_KEY=nothing AWS_REGION=us-east-1
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export AWS_ENDPOINT_URL=http://127.0.0.1:$port

seconds=$("$python" "$here/pack.py" "$corpus" s3/bucket/corpus "${HOURS:-20}")
if [ "${SERVER:-own}" = moto ]; then
  "$python" -m moto.server -H 127.0.0.1 -p "$port" > server.log 2>&1 & server=$!
else
  "$python" "$here/s3_server.py" s3 "$port" > server.log 2>&1 & server=$!
fi
trap 'pkill -P $server 2> /dev/null || true; kill $server 2> /dev/null || true; [ -n "${WORK:-}" ] || rm -rf "$work"' EXIT
for _ in $(seq 100); do (: < /dev/tcp/127.0.0.1/$port) 2> /dev/null && break; sleep 0.1; done
if [ "${SERVER:-own}" = moto ]; then
  "$python" -c 'import boto3, os, sys
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]); s3.create_bucket(Bucket="bucket")
for name in os.listdir("s3/bucket/corpus"): s3.upload_file(f"s3/bucket/corpus/{name}", "bucket", f"corpus/{name}")'
fi

# What `seconds` take as samples of 16 bits; a tenth of that, with room for what is around them.
bytes=$((seconds * 44100)) tenth=$((seconds * 4410))
cat > config.yaml <<Y
training: {log_step: 25, val_step: 1000000, save_step: 1000000}
data: {val_split: 0, long_clips: split, shard_size: $((bytes / shards)), shuffle_shards: $((shards / 40)), max_failures: 50%}
Y
began=$(date +%s)
"$program" prepare s3://bucket/corpus/ --config config.yaml --cache-dir s3://bucket/features --local-cache near \
  --local-cache-size $tenth --json > prepare.json 2> prepare.log || { tail -5 prepare.log; exit 1; }
echo "prepared from the bucket into the bucket in $(($(date +%s) - began)) s"

told() { "$python" - "$1" <<'P'
import json, statistics, sys
rows = [json.loads(line) for line in open(f"{sys.argv[1]}/logs/metrics.jsonl")]
rows = [row for row in rows if "data_readiness" in row]
first, rows = rows[0], rows[1:]
late = rows[len(rows) // 2:]
print(f"{sys.argv[1]}: readiness {100 * statistics.mean(row['data_readiness'] for row in rows):.2f} % "
      f"(least of {len(rows)} windows of {rows[0]['step'] - first['step']} steps: {100 * min(row['data_readiness'] for row in rows):.2f} %), "
      f"{1000 / statistics.mean(row['step_ms'] for row in late):.2f} steps/s, "
      f"{statistics.mean(row['audio_seconds_per_second'] for row in late):.0f} s of speech a second")
worst = sorted((row for row in rows if row["data_readiness"] < 0.995), key=lambda row: row["data_readiness"])[:8]
if worst:
    print("  below 99.5 %: " + ", ".join(f"{100 * row['data_readiness']:.1f} % up to step {row['step']}" for row in worst))
P
}
train() {
  "$program" train --config config.yaml --train-data s3://bucket/corpus/ --model-size "${SIZE:-small}" --steps "$steps" \
    --checkpoint-dir "$1" "${@:2}" > "$1.log" 2>&1 || { tail -5 "$1.log"; exit 1; }
  grep -E "^warning" "$1.log" | sort | uniq -c | sort -rn | head -3 || true
  told "$1"
}
from_bucket() {
  rm -rf near bucket
  train bucket --cache-dir s3://bucket/features --local-cache near --local-cache-size $tenth "$@"
  echo "the store of $((tenth >> 20)) MiB holds $(du -sm near | cut -f 1) MiB, features are $(du -sm s3/bucket/features 2> /dev/null | cut -f 1) MiB"
}
# The same features from a folder: what the bucket has, without its folders.
from_folder() {
  rm -rf local folder
  if [ "${SERVER:-own}" = own ]; then
    for folder in s3/bucket/features/*/; do
      mkdir -p "local/$(basename "$folder")"
      find "$folder" -type f -exec ln {} "local/$(basename "$folder")/" \;
    done
  fi
  train folder --cache-dir local "$@"
}
for run in ${RUNS:-bucket folder}; do "from_$run" "$@"; done
