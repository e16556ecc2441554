#!/usr/bin/env bash
# property.sh FROM TO COUNTS SHIM DRIVER STACK: random programs under random budgets compute what they compute without
# overshot.
#
# For each seed FROM..TO: STACK runs once alone, which gives its digest and how much device memory it holds, and once
# with SHIM under a budget, a ring and other options drawn from the seed. Both must end with status 0 and the same
# digest, the simulated driver must find no race, no illegal access and never more device memory than the budget
# (SIM_LIMIT), and the shim must log no error. Folder COUNTS gets a file that says how many programs ran, streamed
# weights, and had more than one plan, for `property.sh share COUNTS`: of all programs together, 40 % have to stream and
# 10 % to change their plan, or nothing was proved. STACK_OPTIONS: given to every program. DRIVER real: the machine's own
# driver and GPU (tests/gpu/property.sh), of which nobody knows what is held but the shim, in a run without a budget.
set -euo pipefail
if [ "$1" = share ]; then
    cat "$2"/* | awk '{ ran += $1; streamed += $2; replanned += $3 }
        END {
            print ran + 0 " programs: " streamed + 0 " streamed weights, " replanned + 0 " had more than one plan"
            exit ran == 0 || streamed < 0.4 * ran || replanned < 0.1 * ran
        }'
    exit
fi
from=$1 to=$2 counts=$3 shim=$4 driver=$5 stack=$6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "$driver" = real ] || export LD_LIBRARY_PATH=$driver SIM_DEVICES=2

seed_draws() { state=$((($1 * 2654435761 + 97) & 0x7fffffff)); }
draw() { # N: `drawn` is 0 .. N-1
    state=$(((state * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((state >> 8) % $1))
}
pick() { # WORDS...: `picked` is one of them
    draw $#
    shift "$drawn"
    picked=$1
}

# One program in so many...
one_in() {
    draw "$1"
    [ "$drawn" -eq 0 ]
}

# What is passed to `stack` besides the seed. One program in six is as stack draws it: often too small to stream, or
# with addresses in memory. The others get weights that are worth streaming, and mostly reach them by parameters. One in
# three takes memory from mappings or pools of its own.
draw_program() {
    local without=
    one_in 6 && return 0
    draw 5 && program+=(--layers $((4 + drawn)))
    draw 5 && program+=(--passes $((5 + drawn)))
    pick 4M 2M,6M,4M 3145728,2097152,5000000 2M,2M,8M 2097156,4194304 3M,2M,6291456 && program+=(--sizes "$picked")
    pick direct struct extra ex cooperative descriptor direct
    one_in 6 || program+=(--pointers "$picked")
    pick embedding experts both && one_in 10 && program+=(--sparse "$picked")
    pick vmm handle async pool
    if one_in 3; then
        program+=(--alloc "$picked")
    elif ! one_in 3; then
        without+=,alloc
    fi
    one_in 8 || without+=,stale,weights
    one_in 3 || without+=,late-writes,realloc,readback
    one_in 5 || without+=,graph
    one_in 3 || without+=,sync
    one_in 2 || without+=,threads,lanes
    [ -z "$without" ] || program+=(--without "${without#,}")
}

# PEAK_BYTES: options of the shim. Budgets lie between the least that is of use and more than the program needs.
draw_options() {
    local peak_pages=$((($1 + 2097151) >> 21)) pages
    local fixed_pages=$((peak_pages < 10 ? peak_pages : 10)) # small memory and scratch come first
    draw 14
    case $drawn in
    0) pages=2 ;;
    1) draw 3 && pages=$((3 + drawn)) ;;
    2) pages=$((peak_pages + 8)) ;;
    *) draw 70 && pages=$((fixed_pages + (peak_pages - fixed_pages) * (5 + drawn) / 100)) ;;
    esac
    budget_bytes=$(((pages < 2 ? 2 : pages) << 21))
    options=("OVERSHOT_BUDGET=$budget_bytes" "SIM_LIMIT=$budget_bytes")
    if one_in 4; then
        draw 8 && options+=(OVERSHOT_RING=$(((drawn + 1) * 4))M)
    fi
    one_in 5 && options+=("OVERSHOT_TIERS=streamed,host")
    one_in 6 && options+=(OVERSHOT_MIN_UNIT=4M)
    draw 3 && options+=(OVERSHOT_DISCOVERY_CYCLES=$((drawn + 1)))
    one_in 3 && options+=(OVERSHOT_TIMING=3 OVERSHOT_STALL=warn)
    one_in 2 && options+=(OVERSHOT_PLANNING=beside)
    return 0
}

fail() { # SEED WHY
    failed=$((failed + 1))
    echo "seed $1: $2"
    [ "$driver" = real ] || options+=(SIM_DEVICES=2 "LD_LIBRARY_PATH=$driver")
    echo "  run: ${options[*]} LD_PRELOAD=$shim" \
        "$stack --random --seed $1 ${program[*]}"
    sed 's/^/  /' "$work/out" "$work/err" | tail -n 8
}

# The most that the program holds on a device, in MiB.
held_mib() { # SEED
    OVERSHOT_MODE=resident OVERSHOT_SUMMARY=1 LD_PRELOAD="$shim" timeout 120 "$stack" --random --seed "$1" "${program[@]}" 2>&1 |
        sed -n 's/.*all of \([0-9]*\) MiB fitted.*/\1/p' | sort -n | tail -1
}

run_seed() {
    local seed=$1 peak_bytes status=0 wanted got complaint
    read -ra program <<<"${STACK_OPTIONS:-}"
    options=()
    seed_draws "$seed"
    draw_program
    SIM_REPORT=$work/report timeout 120 "$stack" --random --seed "$seed" "${program[@]}" >"$work/out" 2>"$work/err" ||
        status=$?
    wanted=$(grep -a '^digest ' "$work/out") || { fail "$seed" "ended with status $status without the shim" && return; }
    if [ "$driver" = real ]; then
        peak_bytes=$(($(held_mib "$seed") << 20))
    else
        peak_bytes=$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$work/report" | sort -n | tail -1)
    fi
    draw_options "$peak_bytes"
    env "${options[@]}" OVERSHOT_LOG=error OVERSHOT_SUMMARY=1 LD_PRELOAD="$shim" timeout 240 \
        "$stack" --random --seed "$seed" "${program[@]}" >"$work/out" 2>"$work/err" || status=$?
    got=$(grep -a '^digest ' "$work/out") || got='no digest'
    complaint=$(grep -avE '^overshot: (device [0-9]+: (weights|all of|plan|a copy was waited for:|OVERSHOT_TIMING:)|  ) *' "$work/err" | head -1) || true
    if [ "$status" -ne 0 ] || [ "$got" != "$wanted" ] || [ -n "$complaint" ]; then
        fail "$seed" "status $status, $got instead of $wanted; $complaint"
        return
    fi
    if grep -qE ', [1-9][0-9]* copies,' "$work/err"; then
        streamed=$((streamed + 1))
        if grep -qE ' ([2-9]|[1-9][0-9]+) plans,' "$work/err"; then
            replanned=$((replanned + 1))
        fi
    fi
}

failed=0 streamed=0 replanned=0 count=$((to - from + 1))
for seed in $(seq "$from" "$to"); do
    run_seed "$seed"
done
echo "$count programs: $failed failed, $streamed streamed weights, $replanned of them with more than one plan"
[ "$failed" -eq 0 ] || exit 1
mkdir -p "$counts"
echo "$count $streamed $replanned" >"$counts/$from"
