#!/usr/bin/env bash
# Exported voices in onnxruntime on one core, beside a voice of Piper and beside this program. docs/export.md says how.
#
#   WORK=DIR    where voices are put         [default: target/bench-export]
#   ROUNDS=N    runs of each; the median counts  [default: 5]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
bin=${BIN:-target/release/myxtts}
work=${WORK:-target/bench-export}
mkdir -p "$work"
python=$(scripts/test-python.sh)
[ -n "$python" ] || { echo "error: no Python with onnxruntime" >&2; exit 1; }
if [ ! -e "$work/piper.onnx" ]; then
  torch=$(benches/frontend/python.sh)
  # Piper's code from the one, torch from the other.
  PYTHONPATH=$("$python" -c 'import site; print(site.getsitepackages()[0])') "$torch" "$here/piper_voice.py" "$work/piper.part" >&2
  mv "$work/piper.part" "$work/piper.onnx"
fi
if [ ! -e "$work/tiny" ]; then
  "$bin" sample-corpus "$work/corpus" --clips 8 --voice formant --force >&2
  "$bin" train --train-data "$work/corpus" --model-size tiny --steps 1 --device cpu --batch-size 2 --checkpoint-dir "$work/tiny" >&2
fi
voices=(piper-medium="$work/piper.onnx")
# Name, checkpoint, flags.
while read -r name checkpoint flags; do
  [ "$checkpoint" = bundled ] || flags+=" --checkpoint $work/$checkpoint"
  # shellcheck disable=SC2086
  "$bin" export -o "$work/$name/voice.onnx" $flags >&2
  voices+=("$name=$work/$name/voice.onnx")
done <<'VOICES'
tiny tiny
tiny-4-steps tiny --steps 4
tiny-int8 tiny --int8
tiny-4-steps-int8 tiny --steps 4 --int8
small bundled
small-4-steps bundled --steps 4
small-int8 bundled --int8
VOICES
"$python" "$here/rtf.py" "${voices[@]}"
echo
echo "the same network in this program, one thread:"
for size in tiny small; do "$bin" bench synth --model-size "$size" --device cpu --threads 1 --rounds 3; done
