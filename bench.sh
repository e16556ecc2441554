#!/usr/bin/env bash
# ./bench.sh [--json] [NAME...] : the figures that are the same on every machine: times of the simulated driver's
# virtual clock, and instructions counted by callgrind. --json: one line each,
# {"name":…,"value":…,"limit":…,"unit":…}. Ratios named link_ratio must reach their limit, all other figures must not
# exceed theirs; the exit status is 1 if one does not keep to it.
# shellcheck disable=SC2317 # most functions are called through the table
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
. cmake/setup.sh

# name                     limit  unit          function and arguments
figures='
sim.stream.link_ratio      0.98   ratio         link_ratio 192M
sim.half.link_ratio        0.97   ratio         link_ratio 512M
sim.compute.overhead       1.01   ratio         compute_overhead 192M
launch.instructions        700    instructions  launch_instructions 8M
launch.instructions.idle   300    instructions  launch_instructions 1G
'
link_gbps=55.2                      # SIM_LINK_GBPS, the peak that ratios are held against
model=(--layers 16 --bytes 64M)     # each weight is read once a pass
model_bytes=$((16 * 64 << 20))
passes_before=8 passes_measured=12  # by then there is a plan, and the ring is in its rhythm

json=no
if [ "${1:-}" = --json ]; then
    json=yes
    shift
fi
ov_setup
ov_clean_environment
[ $json = yes ] || echo 'building ...' >&2
ov_build default
out=$PWD/build/default
library=$out/shim/libovershot.so
export LD_LIBRARY_PATH=$out/tests/sim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { # COMMAND... : its output matters only when it fails
    "$@" >"$work/output" 2>&1 || {
        tail -n 20 "$work/output" >&2
        echo "failed: $*" >&2
        return 1
    }
}

number() { # KEY FILE : the first number of that key in a JSON file
    grep -o "\"$1\": *[0-9.]*" "$2" | head -n 1 | grep -o '[0-9.]*$'
}

# Runs `stack` twice, the second time with more passes, so that load, discovery and exit cancel out. Prints the
# nanoseconds and the bytes copied to the device that one further pass takes.
steady_pass() { # [VARIABLE=VALUE...] -- STACK-ARGUMENTS
    local settings=() passes
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    for passes in $passes_before $((passes_before + passes_measured)); do
        quietly env "${settings[@]}" SIM_REPORT="$work/$passes" "$out/tests/apps/stack" "${model[@]}" --passes "$passes" "$@" ||
            return 1
    done
    local first=$work/$passes_before last=$work/$((passes_before + passes_measured)) key
    for key in virtual_ns h2d_bytes; do
        awk -v a="$(number "$key" "$first")" -v b="$(number "$key" "$last")" -v n="$passes_measured" \
            'BEGIN { printf "%.1f ", (b - a) / n }'
    done
}

# The time that the streamed bytes take at the link's peak, over the time of the pass that streamed them. What is
# copied more than once a pass does not count twice.
link_ratio() { # BUDGET
    steady_pass LD_PRELOAD="$library" OVERSHOT_BUDGET="$1" -- >"$work/pass" &&
        awk -v gbps="$link_gbps" -v most="$model_bytes" '{ printf "%.4f", ($2 < most ? $2 : most) / gbps / $1 }' "$work/pass"
}

# A pass whose kernels take twice as long as the copies of all weights, over the same pass with all weights resident.
compute_overhead() { # BUDGET
    local ops
    ops=$(awk -v gbps="$link_gbps" 'BEGIN { printf "%.1f", 2 * 50e12 / (gbps * 1e9) }') # 50: SIM_TFLOPS
    steady_pass LD_PRELOAD="$library" OVERSHOT_BUDGET="$1" -- --ops "$ops" >"$work/streamed" &&
        steady_pass -- --ops "$ops" >"$work/resident" &&
        paste -d ' ' "$work/streamed" "$work/resident" | awk '{ printf "%.4f", $1 / $3 }'
}

# Instructions of the library itself in a callgrind profile.
own_instructions() { # FILE
    awk -v wanted=libovershot.so '
        /^ob=/ { match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH); rest = substr($0, RSTART + RLENGTH)
                 if (rest != "") own[id] = index(rest, wanted) > 0; object = id; next }
        /^cob=/ { match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH); rest = substr($0, RSTART + RLENGTH)
                  if (rest != "") own[id] = index(rest, wanted) > 0; next }
        /^calls=/ { getline; next }     # the line after it is what the callee cost
        /^[0-9+*-]/ && own[object] { sum += $2 }
        END { printf "%d", sum }' "$1"
}

launch_instructions() { # BUDGET of a program with 12 MiB of weights
    local launches
    for launches in 200 1200; do
        quietly env LD_PRELOAD="$library" OVERSHOT_BUDGET="$1" SIM_VA_LIMIT=1T \
            valgrind --tool=callgrind --callgrind-out-file="$work/profile.$launches" \
            "$out/tests/tools/launches" tests/kernels/images/probe.fatbin 6 2097152 8 "$launches" || return 1
        own_instructions "$work/profile.$launches" >"$work/instructions.$launches"
    done
    echo $((($(cat "$work/instructions.1200") - $(cat "$work/instructions.200")) / 1000))
}

within() { # NAME VALUE LIMIT
    case $1 in
    *link_ratio) awk -v value="$2" -v limit="$3" 'BEGIN { exit !(value >= limit) }' ;;
    *) awk -v value="$2" -v limit="$3" 'BEGIN { exit !(value <= limit) }' ;;
    esac
}

status=0
while read -r name limit unit command; do
    [ -n "$name" ] || continue
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    # shellcheck disable=SC2086 # words are meant
    if ! value=$($command </dev/null) || [ -z "$value" ]; then
        echo "$name could not be measured" >&2
        status=1
        continue
    fi
    if [ $json = yes ]; then
        printf '{"name":"%s","value":%s,"limit":%s,"unit":"%s"}\n' "$name" "$value" "$limit" "$unit"
    fi
    verdict=ok
    within "$name" "$value" "$limit" || verdict=MISSED status=1
    [ $json = yes ] || printf '%-26s %10s  limit %-6s %-13s %s\n' "$name" "$value" "$limit" "$unit" $verdict
done <<<"$figures"
exit $status
