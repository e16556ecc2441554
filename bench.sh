#!/usr/bin/env bash
# ./bench.sh [--json] [NAME...] : the figures that are the same on every machine: times of the simulated driver's
# virtual clock, plans, and instructions counted by callgrind. --json: one line each,
# {"name":…,"value":…,"limit":…,"unit":…}. Figures named link_ratio and speedup must reach their limit, all others must not
# exceed theirs; the exit status is 1 if one does not keep to it, 77 if nothing but figures that need valgrind was
# asked for and there is none.
# BUILD=FOLDER ./bench.sh : with what was built there, instead of building.
# shellcheck disable=SC2317 # most functions are called through the table
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
# shellcheck source=cmake/setup.sh
. cmake/setup.sh

# name                     limit  unit          function, budget, and what the summary must say for the figure to count
figures='
sim.stream.link_ratio      0.98   ratio         link_ratio 192M all_streamed
sim.half.link_ratio        0.97   ratio         link_ratio 690M half_streamed
sim.compute.overhead       1.01   ratio         compute_overhead 192M all_streamed
sim.graph.link_ratio       0.98   ratio         link_ratio 192M all_streamed --graph
sim.graph.half.link_ratio  0.97   ratio         link_ratio 690M half_streamed --graph
sim.graph.compute.overhead 1.01   ratio         compute_overhead 192M all_streamed --graph
sim.load.peak_device_ratio 1.00   ratio         load_device_ratio 130M load_streamed
sim.load.host_ratio        1.05   ratio         load_host_ratio 130M load_streamed
sim.sparse.speedup         5      ratio         sparse_speedup 200M table_in_place table_not_in_place
sim.discovery.speedup      2      ratio         discovery_speedup 300M most_streamed
store.rss_ratio            1.02   ratio         rss_ratio 420M all_pinned
store.share.rss_ratio      1.05   ratio         share_ratio 4
graph.instantiate.overhead 2.5    ratio         instantiate_overhead 20M some_streamed
plan.balanced.gap          1.02   ratio         plan_gap balanced
plan.chat.gap              1.02   ratio         plan_gap chat
plan.decode.gap            1.02   ratio         plan_gap decode
plan.diffusion.gap         1.02   ratio         plan_gap diffusion
plan.encoder-decoder.gap   1.02   ratio         plan_gap encoder-decoder
plan.fused.gap             1.02   ratio         plan_gap fused
plan.h200-graph.gap        1.02   ratio         plan_gap h200-graph
plan.h200-llama-16k.gap    1.02   ratio         plan_gap h200-llama-16k
plan.h200-llama-32.gap     1.05   ratio         plan_gap h200-llama-32
plan.huge-unit.gap         1.02   ratio         plan_gap huge-unit
plan.many-small.gap        1.02   ratio         plan_gap many-small
plan.moe.gap               1.02   ratio         plan_gap moe
plan.nearly-fits.gap       1.02   ratio         plan_gap nearly-fits
plan.prefill.gap           1.02   ratio         plan_gap prefill
plan.pyramid.gap           1.05   ratio         plan_gap pyramid
plan.speculative.gap       1.02   ratio         plan_gap speculative
plan.tied.gap              1.02   ratio         plan_gap tied
plan.tiny-budget.gap       1.02   ratio         plan_gap tiny-budget
plan.two-models.gap        1.02   ratio         plan_gap two-models
plan.unet.gap              1.02   ratio         plan_gap unet
plan.uneven.gap            1.02   ratio         plan_gap uneven
plan.time_ms               200    ms            plan_time 5000
launch.instructions        700    instructions  launch_instructions 20M some_streamed
launch.instructions.idle   300    instructions  launch_instructions 1G never_exceeded
'
# shellcheck disable=SC2034 # used by name
{
    all_streamed='weights 1024 MiB: 0 resident, 1024 streamed, 0 host-mapped; ring [1-9]'
    all_pinned='weights 392 MiB: 0 resident, 392 streamed, 0 host-mapped; ring [1-9]'
    load_streamed='weights 400 MiB: 0 resident, 400 streamed, 0 host-mapped; ring [1-9]'
    table_in_place='weights 224 MiB: 128 resident, 0 streamed, 96 host-mapped;'
    table_not_in_place='weights 224 MiB: [0-9]* resident, [1-9][0-9]* streamed, 0 host-mapped;'
    most_streamed='weights 384 MiB: 64 resident, 320 streamed, 0 host-mapped; ring [1-9]'
    half_streamed='weights 1024 MiB: 512 resident, 512 streamed, 0 host-mapped; ring [1-9]'
    some_streamed='weights 12 MiB: .* [1-9][0-9]* streamed, 0 host-mapped; ring [1-9].* 1 plans'
    never_exceeded='fitted the budget'
}

link_gbps=55.2                      # SIM_LINK_GBPS, the peak that ratios are held against
tflops=50                           # SIM_TFLOPS
model=(--layers 16 --bytes 64M)     # each weight is read once a pass
load=(--layers 12 --sizes "17M,33M,48M" --workspace 16M --cache 4M --grow --passes 7)
passes_before=5 passes_measured=2   # by then there is a plan, and every pass is like the one before

json=no
if [ "${1:-}" = --json ]; then
    json=yes
    shift
fi
if [ -n "${BUILD:-}" ]; then
    out=$(cd "$BUILD" && pwd)
else
    ov_setup
    [ $json = yes ] || echo 'building ...' >&2
    ov_build default
    out=$PWD/build/default
fi
ov_clean_environment
export OVERSHOT_PLANNING=wait # passes are alike from one run to the next
library=$out/shim/libovershot.so
export LD_LIBRARY_PATH=$out/tests/sim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# measured FILE COMMAND... : runs it, its output to FILE, which matters only when it fails.
measured() {
    local file=$1
    shift
    "$@" >"$file" 2>&1 || {
        tail -n 20 "$file" >&2
        echo "failed: $*" >&2
        return 1
    }
}

# preloaded FILE BUDGET EXPECTED COMMAND... : the same with overshot in front of the driver. What overshot says it did
# must be what the figure is about.
preloaded() {
    local file=$1 budget=$2 expected=${!3}
    shift 3
    measured "$file" env OVERSHOT_BUDGET="$budget" OVERSHOT_SUMMARY=1 LD_PRELOAD="$library" "$@" || return 1
    grep -q "^overshot: .*$expected" "$file" || {
        grep '^overshot: ' "$file" >&2
        echo "expected: $expected" >&2
        return 1
    }
}

number() { # KEY FILE : the first number of that key in a JSON file
    grep -o "\"$1\": *[0-9.]*" "$2" | head -n 1 | grep -o '[0-9.]*$'
}

# Runs `stack` twice, the second time with more passes, so that load, discovery and exit cancel out. Prints the
# nanoseconds and the bytes copied to the device that one further pass takes.
steady_pass() { # RUN... -- STACK-ARGUMENTS
    local run=() passes
    while [ "$1" != -- ]; do
        run+=("$1")
        shift
    done
    shift
    for passes in $passes_before $((passes_before + passes_measured)); do
        SIM_REPORT=$work/$passes "${run[0]}" "$work/output" "${run[@]:1}" \
            "$out/tests/apps/stack" "${model[@]}" --passes "$passes" "$@" || return 1
    done
    local first=$work/$passes_before last=$work/$((passes_before + passes_measured)) key
    for key in virtual_ns h2d_bytes; do
        awk -v a="$(number "$key" "$first")" -v b="$(number "$key" "$last")" -v n="$passes_measured" \
            'BEGIN { printf "%.1f ", (b - a) / n }'
    done
}

# The time that the streamed weights take at the link's peak, over the time of the pass that copied them. What is
# copied more than once a pass does not count twice, what is not copied does not count.
link_ratio() { # BUDGET EXPECTED STACK-ARGUMENTS
    steady_pass preloaded "$1" "$2" env OVERSHOT_TIERS=resident,streamed OVERSHOT_PROFILE_CYCLES=0 -- "${@:3}" >"$work/pass" || return 1
    local streamed
    streamed=$(sed -n 's/^overshot: .* \([0-9]*\) streamed.*/\1/p' "$work/output")
    awk -v gbps="$link_gbps" -v most=$((streamed << 20)) \
        '{ printf "%.4f", ($2 < most ? $2 : most) / gbps / $1 }' "$work/pass"
}

# A pass whose kernels take twice as long as the copies of all weights, over the same pass without overshot; when passes
# have been timed (OVERSHOT_PROFILE_CYCLES), which is over then and may have left nothing behind.
compute_overhead() { # BUDGET EXPECTED STACK-ARGUMENTS
    local ops passes_before=12
    ops=$(awk -v gbps="$link_gbps" -v tflops="$tflops" 'BEGIN { printf "%.1f", 2 * tflops * 1000 / gbps }')
    steady_pass preloaded "$1" "$2" env OVERSHOT_TIERS=streamed -- --ops "$ops" "${@:3}" >"$work/streamed" &&
        steady_pass measured -- --ops "$ops" "${@:3}" >"$work/resident" &&
        paste -d ' ' "$work/streamed" "$work/resident" | awk '{ printf "%.4f", $1 / $3 }'
}

# Pinned memory that overshot adds, at its peak, over the bytes of the weights, all of which are streamed. Their sizes
# are what rounding to powers of two would nearly double.
rss_ratio() { # BUDGET EXPECTED
    local sizes=(--layers 4 --sizes 65M,129M --passes 4)
    SIM_REPORT=$work/with preloaded "$work/output" "$@" \
        env OVERSHOT_TIERS=streamed "$out/tests/apps/stack" "${sizes[@]}" &&
        SIM_REPORT=$work/without measured "$work/output" "$out/tests/apps/stack" "${sizes[@]}" || return 1
    awk -v a="$(number pinned_peak_bytes "$work/with")" -v b="$(number pinned_peak_bytes "$work/without")" \
        'BEGIN { printf "%.4f", (a - b) / (2 * (65 + 129) * 1048576) }'
}

# A model of three times the budget, from its first byte to the end, with memory that grows in between.
load_far_over() { # BUDGET EXPECTED
    SIM_REPORT=$work/load preloaded "$work/output" "$@" "$out/tests/apps/stack" "${load[@]}"
}

# Device memory at its peak, over the budget.
load_device_ratio() { # BUDGET EXPECTED
    load_far_over "$@" || return 1
    awk -v peak="$(number peak_bytes "$work/load")" -v mib="${1%M}" 'BEGIN { printf "%.4f", peak / (mib * 1048576) }'
}

# Host memory that overshot adds, at its peak, over the bytes of weights and ring together.
load_host_ratio() { # BUDGET EXPECTED
    local ring
    load_far_over "$@" && SIM_REPORT=$work/without measured "$work/alone" "$out/tests/apps/stack" "${load[@]}" || return 1
    ring=$(sed -n 's/^overshot: .* ring \([0-9]*\) MiB.*/\1/p' "$work/output")
    awk -v a="$(number pinned_peak_bytes "$work/load")" -v b="$(number pinned_peak_bytes "$work/without")" \
        -v ring="$ring" 'BEGIN { printf "%.4f", (a - b) / ((4 * (17 + 33 + 48) + ring) * 1048576) }'
}

# A pass that looks rows up in a large table: the best that can be had without reading it in place, over the time with.
sparse_speedup() { # BUDGET EXPECTED-IN-PLACE EXPECTED-OTHERWISE
    local model=(--layers 8 --bytes 16M --sparse embedding --table 96M)
    steady_pass preloaded "$1" "$2" -- >"$work/in_place" &&
        steady_pass preloaded "$1" "$3" env OVERSHOT_TIERS=resident,streamed -- >"$work/otherwise" &&
        paste -d ' ' "$work/otherwise" "$work/in_place" | awk '{ printf "%.2f", $1 / $3 }'
}

# Before there is a plan: a pass in which what the program writes is in the host, since weights were there first, over
# one after it, in which weights are in its stead. (What it writes was allocated before the first launch.)
discovery_speedup() { # BUDGET EXPECTED
    preloaded "$work/output" "$@" env OVERSHOT_DISCOVERY_CYCLES=4 \
        "$out/tests/apps/stack" --layers 12 --bytes 32M --workspace 128M --cache 32M --passes 8 --times || return 1
    awk '/^pass [02] / { ms[$2] = $3 } END { printf "%.2f", ms[0] / ms[2] }' "$work/output"
}

# Host memory of several processes together, which run the same weights and share them, over that of one.
share_ratio() { # PROCESSES
    measured "$work/output" env OVERSHOT_BUDGET=22M OVERSHOT_VERIFY=1 SIM_KERNELS="$out/tests/kernels/libsimkernels.so" \
        tests/store/share.sh together "$1" "$library" "$LD_LIBRARY_PATH" "$out/tests/store/t_store" || return 1
    sed -n 's/^ratio //p' "$work/output"
}

# What the planner's simulation says of its plan, over the time that no plan can beat.
plan_gap() { # TRACE
    tests/plan/gap.sh "$out/tools/overshot" "tests/plan/traces/$1.json" inf
}

# A plan of so many units, of a trace that the search spends all its effort on, since computation takes about as long as
# the copies and is uneven. Exact because instructions are counted, two to the nanosecond: a core of 3 GHz does more.
plan_time() { # UNITS
    command -v valgrind >/dev/null || return 77
    awk -v n="$1" 'BEGIN {
        print "{\"schema\": \"overshot profile\", \"version\": 1, \"budget\": 107374182400, \"weights\": ["
        for (i = 0; i < n; i++) {
            pages[i] = 2 + i * 7919 % 29 + int(60 * i * i / n / n)
            printf "%s{\"bytes\": %d}\n", i ? ", " : "", pages[i] * 2097152
        }
        print "], \"cycles\": [{\"touches\": ["
        for (i = 0; i < n; i++) printf "%s%d", i ? ", " : "", i
        print "], \"compute_us\": ["
        for (i = 0; i < n; i++) printf "%s%.2f", i ? ", " : "", pages[i] * 28 * (i * 31 % 7) / 3
        print "]}]}"
    }' >"$work/profile.json"
    measured "$work/output" valgrind --tool=callgrind --callgrind-out-file="$work/profile.plan" \
        --toggle-collect=ov_plan_make "$out/tools/overshot" plan "$work/profile.json" || return 1
    sed -n 's/^\(summary\|totals\): *\([0-9]*\).*/\2/p' "$work/profile.plan" | head -n 1 | awk '{ printf "%.1f", $1 / 2 / 1e6 }'
}

# Instructions of the library itself in a callgrind profile.
own_instructions() { # FILE
    awk -v wanted=libovershot.so '
        /^c?ob=/ { match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH); rest = substr($0, RSTART + RLENGTH)
                   if (rest != "") own[id] = index(rest, wanted) > 0
                   if (/^ob=/) object = id
                   next }
        /^calls=/ { getline; next } # what the called function took is counted where it belongs
        /^[0-9+*-]/ && own[object] { sum += $2 }
        END { printf "%d", sum }' "$1"
}

# What one more launch takes. It touches only memory that is resident: it makes nothing be copied.
launch_instructions() { # BUDGET EXPECTED
    command -v valgrind >/dev/null || return 77
    local launches
    for launches in 200 1200; do
        preloaded "$work/output" "$@" env SIM_VA_LIMIT=1T \
            valgrind --tool=callgrind --callgrind-out-file="$work/profile.$launches" \
            "$out/tests/tools/launches" tests/kernels/images/probe.fatbin 6 2097152 8 "$launches" || return 1
        own_instructions "$work/profile.$launches" >"$work/instructions.$launches"
        grep -o '[0-9]* copies' "$work/output" >"$work/copies.$launches" || true
    done
    cmp -s "$work/copies.200" "$work/copies.1200" || {
        echo 'the launches that were to touch resident memory only made weights be copied' >&2
        return 1
    }
    awk -v a="$(cat "$work/instructions.200")" -v b="$(cat "$work/instructions.1200")" \
        'BEGIN { if (a <= 0 || b <= a) exit 1; printf "%.0f", (b - a) / 1000 }'
}

# What it takes to make an executable graph of 2000 nodes and to launch it once, in virtual time, over the same without
# overshot. With it, that is the program's own, one of a clone with copies in it, and all that is asked of the nodes.
instantiate_overhead() { # BUDGET EXPECTED
    local graphs run arguments=(tests/kernels/images/probe.fatbin 6 2097152 8)
    for graphs in 2 12; do
        SIM_REPORT=$work/with.$graphs preloaded "$work/output" "$@" \
            "$out/tests/tools/launches" "${arguments[@]}" "$graphs" 2000 &&
            SIM_REPORT=$work/without.$graphs measured "$work/output.plain" \
                "$out/tests/tools/launches" "${arguments[@]}" "$graphs" 2000 || return 1
    done
    for run in with without; do
        awk -v a="$(number virtual_ns "$work/$run.2")" -v b="$(number virtual_ns "$work/$run.12")" \
            'BEGIN { printf "%.0f ", (b - a) / 10 }'
    done >"$work/instantiate"
    awk '{ printf "%.4f", $1 / $2 }' "$work/instantiate"
}

within() { # NAME VALUE LIMIT
    case $1 in
    *link_ratio | *speedup) awk -v value="$2" -v limit="$3" 'BEGIN { exit !(value >= limit) }' ;;
    *) awk -v value="$2" -v limit="$3" 'BEGIN { exit !(value <= limit) }' ;;
    esac
}

missed=0 shown=0 skipped=0
while read -r name limit unit command; do
    [ -n "$name" ] || continue
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    outcome=0
    # shellcheck disable=SC2086 # words are meant
    value=$($command </dev/null) || outcome=$?
    if [ $outcome = 77 ]; then
        echo "$name skipped: there is no valgrind" >&2
        skipped=$((skipped + 1))
        continue
    fi
    shown=$((shown + 1))
    if [ $outcome != 0 ] || [ -z "$value" ]; then
        echo "$name could not be measured" >&2
        missed=$((missed + 1))
        continue
    fi
    verdict=ok
    within "$name" "$value" "$limit" || verdict=MISSED missed=$((missed + 1))
    if [ $json = yes ]; then
        printf '{"name":"%s","value":%s,"limit":%s,"unit":"%s"}\n' "$name" "$value" "$limit" "$unit"
    else
        printf '%-26s %10s  limit %-6s %-13s %s\n' "$name" "$value" "$limit" "$unit" $verdict
    fi
done <<<"$figures"
if [ $((shown + skipped)) = 0 ]; then
    echo "no such figure: $*" >&2
    exit 2
fi
[ $missed = 0 ] || exit 1
[ $shown -gt 0 ] || exit 77
