#!/usr/bin/env bash
# property.sh STYLE FROM TO SHIM DRIVER STACK: random programs compute what they compute without overshot, though some of
# their launches find the weights' addresses in memory of the kind STYLE (see --pointers of STACK). As
# tests/engine/property.sh; proves at the end that it tested something: half of the programs streamed weights.
set -euo pipefail
style=$1 from=$2 to=$3 shim=$4 driver=$5 stack=$6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$driver
without=graph,devices,threads,sparse,stale,workspace,cache,alloc,lanes

streamed=0 failed=0
for seed in $(seq "$from" "$to"); do
    program=(--random --seed "$seed" --pointers "$style" --without "$without" --sizes "2M,4M" --weights $((1 + seed % 2))
        --layers $((6 + seed % 4))
        --passes $((9 + seed % 4)) )
    [ $((seed % 3)) -eq 0 ] || program+=(--late-writes 0 --realloc 0 --readback 0)
    status=0
    SIM_REPORT=$work/report timeout 120 "$stack" "${program[@]}" >"$work/out" 2>"$work/err" || status=$?
    wanted=$(grep -a '^digest ' "$work/out") || { echo "seed $seed: status $status alone" && exit 1; }
    peak_bytes=$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$work/report" | sort -n | tail -1)
    budget_bytes=$(((peak_bytes * (40 + seed % 5 * 10) / 100 >> 21) << 21))
    options=("OVERSHOT_BUDGET=$budget_bytes" "SIM_LIMIT=$budget_bytes" "OVERSHOT_DISCOVERY_CYCLES=$((1 + seed % 2))")
    env "${options[@]}" OVERSHOT_LOG=error OVERSHOT_SUMMARY=1 LD_PRELOAD="$shim" timeout 240 "$stack" "${program[@]}" \
        >"$work/out" 2>"$work/err" || status=$?
    got=$(grep -a '^digest ' "$work/out") || got='no digest'
    complaint=$(grep -avE '^overshot: device [0-9]+: (weights|all of) ' "$work/err" | head -1) || true
    if [ "$status" -ne 0 ] || [ "$got" != "$wanted" ] || [ -n "$complaint" ]; then
        failed=$((failed + 1))
        echo "seed $seed: status $status, $got instead of $wanted; $complaint"
        echo "  run: ${options[*]} LD_LIBRARY_PATH=$driver LD_PRELOAD=$shim $stack ${program[*]}"
    fi
    ! grep -qE ', [1-9][0-9]* copies,' "$work/err" || streamed=$((streamed + 1))
done
echo "$((to - from + 1)) programs: $failed failed, $streamed streamed weights"
[ "$failed" -eq 0 ] || exit 1
if [ $((streamed * 2)) -lt $((to - from + 1)) ]; then
    echo 'too few programs streamed anything: this tested too little'
    exit 1
fi
