#!/bin/sh
# predict.sh LIBRARY DRIVER STACK TOOL BUDGET LAYERS SIZES OPS [VARIABLE=VALUE...] : what `overshot plan` says of a
# program's pass against what the simulated driver's clock says of it, after the library has made its own plan, for a guess.
# They may differ by 2 %. SIZES, in MiB, are taken in turn by the layers; OPS are operations for each byte of weight.
set -eu
library=$1 driver=$2 stack=$3 tool=$4 budget=$5 layers=$6 sizes=$7 ops=$8
shift 8
gbps=55.2 hbm=4000 tflops=50 # SIM_LINK_GBPS, SIM_HBM_GBPS, SIM_TFLOPS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

number() { # KEY FILE
    grep -o "\"$1\": *[0-9.]*" "$2" | head -n 1 | grep -o '[0-9.]*$'
}

# Load, discovery and the end of the program cancel out.
list=$(echo "$sizes" | sed 's/,/M,/g')M
for passes in 6 8; do
    env "$@" OVERSHOT_PROFILE_CYCLES=0 SIM_REPORT="$work/$passes" OVERSHOT_BUDGET="$budget" OVERSHOT_SUMMARY=1 LD_PRELOAD="$library" \
        LD_LIBRARY_PATH="$driver" "$stack" --layers "$layers" --sizes "$list" --passes "$passes" --ops "$ops" \
        >"$work/output" 2>&1 || {
        cat "$work/output" >&2
        exit 1
    }
done
measured=$(awk -v a="$(number virtual_ns "$work/6")" -v b="$(number virtual_ns "$work/8")" \
    'BEGIN { printf "%.6f", (b - a) / 2 / 1e6 }')

# The same program as a profile. What the program writes itself takes some of the budget: a page and little more.
awk -v layers="$layers" -v sizes="$sizes" -v ops="$ops" -v hbm="$hbm" -v tflops="$tflops" -v scale="$gbps" 'BEGIN {
    count = split(sizes, size, ",")
    scale /= 55.2
    printf "{\"schema\": \"overshot profile\", \"version\": 1, \"link\": [[2097152, %g], [16777216, %g], [67108864, %g], [268435456, %g]],\n",
        51 * scale, 53.8 * scale, 54.9 * scale, 55.3 * scale
    printf "\"weights\": ["
    for (i = 0; i < layers; i++) printf "%s{\"bytes\": %d}", i ? ", " : "", size[i % count + 1] * 1048576
    printf "],\n\"cycles\": [{\"touches\": ["
    for (i = 0; i < layers; i++) printf "%s%d", i ? ", " : "", i
    printf "], \"compute_us\": ["
    for (i = 0; i < layers; i++) {
        bytes = size[i % count + 1] * 1048576
        memory = bytes / hbm / 1e3
        arithmetic = bytes * ops / tflops / 1e6
        longer = memory
        if (arithmetic > memory) longer = arithmetic
        printf "%s%.3f", i ? ", " : "", longer
    }
    print "]}]}"
}' >"$work/profile.json"
options=
for variable in "$@"; do
    case $variable in
    OVERSHOT_TIERS=*) options="$options --tiers=${variable#*=}" ;;
    OVERSHOT_RING=*) options="$options --ring=${variable#*=}" ;;
    OVERSHOT_STRATEGY=*) options="$options --strategy=${variable#*=}" ;;
    esac
done
weights=$(sed -n 's/^overshot: .* ring \([0-9]*\) MiB.*/\1/p' "$work/output")
used=$(sed -n 's/^overshot: .*: \([0-9]*\) resident.*/\1/p' "$work/output")
# What the library left for weights and ring; it is its plan that is predicted, so its ring is asked for.
room=$((used + weights))
# shellcheck disable=SC2086 # options are words
"$tool" plan "$work/profile.json" --budget "${room}M" $options --ring "${weights}M" --json >"$work/plan.json"
predicted=$(number cycle_ms "$work/plan.json")
awk -v predicted="$predicted" -v measured="$measured" 'BEGIN {
    ratio = measured / predicted
    printf "predicted %.3f ms, measured %.3f ms, ratio %.4f\n", predicted, measured, ratio
    exit !(ratio >= 0.98 && ratio <= 1.02)
}' || {
    grep '^overshot: ' "$work/output" >&2
    exit 1
}
