#!/bin/bash
# PSFT and RLOO on one GPU and on two, a killed worker, and its resumption: the data-parallel trainer.
#
#   run.sh PIPELINE OUT [cuda|cpu]     # PIPELINE: the binary, built with --features cuda
#
# Needs python3 with torch and transformers. OUT gets a log, metrics and timings of every part, and the
# memory of each GPU over time. On `cpu` it rehearses itself with a tiny model.
P=$(realpath "$1"); mkdir -p "$2"; OUT=$(realpath "$2"); DEVICE=${3:-cuda}
HERE=$(cd "$(dirname "$0")" && pwd); W=$(mktemp -d); cp "$HERE"/* "$W"; cd "$W" || exit 1
[ "$DEVICE" = cpu ] && SMALL=--small SET="--set vars.batch=8 --set vars.micro=2048 --set vars.steps=6" RSET="--set vars.tokens=8"
say() { echo "## $(date +%T) $*" | tee -a "$OUT/log"; }
part() { local limit=$1 name=$2; shift 2; say "$name: $*"; timeout "$limit" "$@" > "$OUT/$name.out" 2>&1; say "$name ended with $?"; }
train() { # seconds, name, manifest, GPUs, settings
  part "$1" "$2" "$P" run "$3" --device $DEVICE --cache "c-$2" --set "vars.gpus=$4" "${@:5}"
  for file in metrics timing; do cp results/*/train/$file.jsonl "$OUT/$2.$file" 2> /dev/null; done
  rm -rf results
}
if [ "$DEVICE" = cuda ]; then
  (while sleep 0.5; do nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits | tr '\n' ' '; date +%T; done) > "$OUT/memory" &
  MONITOR=$!
fi
part 60 prepare "$P" run prepare.toml --device cpu --cache c-prepare --results prepared
part 120 model python3 prepare.py prepared/prepare $SMALL
train 120 psft1 psft.toml 1 $SET
train 120 psft2 psft.toml 2 $SET
say "a run whose worker is killed after its fourth update"
"$P" run psft.toml --device $DEVICE --cache c-resumed --set vars.gpus=2 $SET > "$OUT/killed.out" 2>&1 & ENGINE=$!
for _ in $(seq 600); do
  sleep 0.2; STATE=$(ls -d c-resumed/inflight/*/state/step-* 2> /dev/null | tail -n 1)
  [ -n "$STATE" ] && [ "${STATE##*-}" -ge 4 ] && break
done
kill -9 "$(pgrep -P $ENGINE | head -n 1)"; wait $ENGINE; say "the engine ended with $?"
train 120 resumed psft.toml 2 $SET
cmp "$OUT/psft2.metrics" "$OUT/resumed.metrics" && say "resumed: the metrics of the run that was not killed, byte for byte"
train 120 rloo1 rloo.toml 1 $RSET
train 120 rloo2 rloo.toml 2 $RSET
[ -n "$MONITOR" ] && kill $MONITOR
tail -n 5 "$OUT/killed.out"; head -n 2 "$OUT"/*.metrics | cut -c1-600; tail -n 2 "$OUT"/*.timing; cat "$OUT/log"
