#!/bin/bash
# PSFT on 1, 2, 4 … GPUs, a killed worker and its resumption, RLOO with its rollouts shared out: the
# data-parallel trainer in one sitting (below 300 s on two GPUs).
#
#   run.sh PIPELINE OUT [cuda|cpu] [RANKS…]     # PIPELINE: the binary, built with --features cuda
#
# RANKS: powers of two up to the GPUs that there are. Needs python3 with torch and transformers. OUT gets a
# log, metrics and timings of every part, the memory of each GPU over time, and `table`. On `cpu` it
# rehearses itself with a tiny model; ranks are then devices of one process (PIPELINE_CPU_RANKS).
P=$(realpath "$1"); mkdir -p "$2"; OUT=$(realpath "$2"); DEVICE=${3:-cuda}; shift 3; RANKS="$*"
HERE=$(cd "$(dirname "$0")" && pwd); W=$(mktemp -d); cp "$HERE"/* "$W"; cd "$W" || exit 1
if [ "$DEVICE" = cpu ]; then
  SMALL=--small SET="--set vars.batch=8 --set vars.micro=512 --set vars.steps=6" RSET="--set vars.tokens=8"
  RANKS=${RANKS:-1 2}
else
  COUNT=$(nvidia-smi --list-gpus | wc -l)
  [ -n "$RANKS" ] || for n in 1 2 4 8; do [ $n -le "$COUNT" ] && RANKS="$RANKS $n"; done
  (while sleep 0.5; do nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits | tr '\n' ' '; date +%T; done) > "$OUT/memory" &
  MONITOR=$!
fi
MOST=${RANKS##* }
say() { echo "## $(date +%T) $*" | tee -a "$OUT/log"; }
part() { local limit=$1 name=$2; shift 2; say "$name: $*"; timeout "$limit" "$@" > "$OUT/$name.out" 2>&1; say "$name ended with $?"; }
on() { # ranks: where they are
  if [ "$DEVICE" = cpu ]; then export PIPELINE_CPU_RANKS=$1; echo "--set vars.gpus=0"; else echo "--set vars.gpus=$1"; fi
}
train() { # seconds, name, manifest, ranks, settings
  [ "$DEVICE" = cpu ] && export PIPELINE_CPU_RANKS=$4
  part "$1" "$2" "$P" run "$3" --device $DEVICE --cache "c-$2" $(on "$4") "${@:5}"
  for file in metrics timing; do cp results/*/train/$file.jsonl "$OUT/$2.$file" 2> /dev/null; done
  rm -rf results
}
part 60 prepare "$P" run prepare.toml --device cpu --cache c-prepare --results prepared
part 120 model python3 prepare.py prepared/prepare $SMALL
for n in $RANKS; do train 120 psft$n psft.toml "$n" $SET; done
# micro-batches of about four sequences instead of fifty
for n in $RANKS; do train 120 four$n psft.toml "$n" $SET --set vars.micro=1280 --set vars.steps=6; done
say "a run on $MOST whose worker is killed after its fourth update"
[ "$DEVICE" = cpu ] && export PIPELINE_CPU_RANKS=$MOST
"$P" run psft.toml --device $DEVICE --cache c-resumed $(on "$MOST") $SET > "$OUT/killed.out" 2>&1 & ENGINE=$!
for _ in $(seq 600); do
  sleep 0.2; kill -0 $ENGINE 2> /dev/null || break; STATE=$(ls -d c-resumed/inflight/*/state/step-* 2> /dev/null | tail -n 1)
  [ -n "$STATE" ] && [ "${STATE##*-}" -ge 4 ] && break
done
kill -9 "$(pgrep -P $ENGINE | head -n 1)"; wait $ENGINE; say "the engine ended with $?"
train 120 resumed psft.toml "$MOST" $SET
cmp "$OUT/psft$MOST.metrics" "$OUT/resumed.metrics" && say "resumed: the metrics of the run that was not killed, byte for byte"
train 120 rloo1 rloo.toml 1 $RSET
[ "$MOST" -gt 1 ] && train 120 rloo$MOST rloo.toml "$MOST" $RSET
[ -n "$MONITOR" ] && kill $MONITOR
tail -n 5 "$OUT/killed.out"; cat "$OUT/log"; python3 table.py "$OUT" $RANKS | tee "$OUT/table"
