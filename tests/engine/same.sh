#!/usr/bin/env bash
# same.sh SHIM DRIVER STACK OPTIONS...: one program of `stack` computes what it computes without overshot; the driver
# and the shim report nothing. Budget and the like come from the environment. STREAMS=1: and weights were streamed; PLANS=N:
# with at most so many plans; MISSES=N: with at most so many misses; IN_PART=1: something was left in host memory because it is read in part.
set -euo pipefail
shim=$1 driver=$2 stack=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$driver SIM_DEVICES=2 OVERSHOT_SUMMARY=1 OVERSHOT_LOG=error
SIM_LIMIT='' "$stack" "$@" >"$work/alone" || { echo "status $? without the shim" && exit 1; }
status=0
SIM_LIMIT=$OVERSHOT_BUDGET LD_PRELOAD=$shim "$stack" "$@" >"$work/with" 2>"$work/err" || status=$?
cat "$work/err"
[ "$status" -eq 0 ] || { echo "status $status" && exit 1; }
cmp "$work/alone" "$work/with" || exit 1
if grep -avE '^overshot: device [0-9]+: (weights|all of) ' "$work/err"; then
    exit 1
fi
[ "${STREAMS:-0}" = 0 ] || grep -qE ', [1-9][0-9]* copies,' "$work/err" || { echo 'nothing was streamed' && exit 1; }
[ "${IN_PART:-0}" = 0 ] || grep -q 'read in part' "$work/err" || { echo 'nothing was found to be read in part' && exit 1; }
plans=$(sed -n 's/.*; \([0-9]*\) plans, .*/\1/p' "$work/err" | tail -n 1)
[ -z "${PLANS:-}" ] || [ "${plans:-0}" -le "$PLANS" ] || { echo "$plans plans" && exit 1; }
misses=$(sed -n 's/.* copies, \([0-9]*\) misses.*/\1/p' "$work/err" | tail -n 1)
[ -z "${MISSES:-}" ] || [ "${misses:-$((MISSES + 1))}" -le "$MISSES" ] || { echo "${misses:-unknown} misses" && exit 1; }
