#!/bin/sh
# timed.sh LIBRARY DRIVER STACK TOOL CASE : what the library finds out about a program's passes and the link, what it
# predicts from that, and what it does with it, against the clock of the simulated driver. Exit status 0 or 1.
# shellcheck source=simulated.sh
. "$(dirname "$0")/simulated.sh"
# 12 weights, 96 MiB: large enough that what a pass takes of the host's time is little.
layers=12 sizes=8,4,12
hbm=4000 tflops=50 # SIM_HBM_GBPS, SIM_TFLOPS

# program BUDGET OPS PASSES [VARIABLE=VALUE...] [-- OPTION...] : runs it; $work/log, /report, /profile/*
program() {
    budget=$1 ops=$2 passes=$3
    shift 3
    variables=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        variables="$variables $1"
        shift
    done
    [ $# = 0 ] || shift
    rm -rf "$work/log" "$work/profile"
    # shellcheck disable=SC2086 # variables are words
    watched OVERSHOT_BUDGET="$budget" OVERSHOT_LOG=debug OVERSHOT_LOG_FILE="$work/log" \
        OVERSHOT_PROFILE_DIR="$work/profile" SIM_REPORT="$work/report" $variables \
        "$stack" --layers $layers --sizes "$(echo $sizes | sed 's/,/M,/g')M" --ops "$ops" --passes "$passes" "$@" \
        >"$work/output" 2>&1 || die "$(cat "$work/output")"
}

number() { # KEY FILE
    grep -o "\"$1\": *[0-9.]*" "$2" | head -n 1 | grep -o '[0-9.]*$' || echo 0
}

# pass_ms FROM TO BUDGET OPS [...] : of passes FROM to TO; everything else cancels out.
pass_ms() {
    from=$1 to=$2 budget=$3 ops=$4
    shift 4
    program "$budget" "$ops" "$from" "$@"
    begin=$(number virtual_ns "$work/report")
    program "$budget" "$ops" "$to" "$@"
    awk -v a="$begin" -v b="$(number virtual_ns "$work/report")" -v n=$((to - from)) \
        'BEGIN { printf "%.6f", (b - a) / n / 1e6 }'
}

# told WORD : the number before it in the last line that tells times, "computes X ms", "predicted X ms"
told() {
    sed -n "s/.*a pass computes .*/&/p" "$work/log" | tail -n 1 | sed -n "s/.*$1 \([0-9.]*\) ms.*/\1/p"
}

plans() {
    grep -c ', plan [0-9]*: .* resident' "$work/log" || :
}

within() { # PERCENT A B WHAT
    awk -v limit="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(b > 0 && a / b < 1 + limit / 100 && a / b > 1 - limit / 100) }' ||
        die "$4: $2 and $3 differ by more than $1 %"
}

column() { # NAME : of the profile's cycle
    tr -d ' \n' <"$(echo "$work"/profile/*)" | sed -n "s/.*\"$1\":\[\([^]]*\)\].*/\1/p"
}

# Each interval of the cycle but the last and the first: the program waits and begins anew.
intervals_are_kernels() {
    column compute_us >"$work/times"
    [ -s "$work/times" ] || die "budget $1: the profile has no times"
    awk -F, -v sizes=$sizes -v ops="$2" -v hbm=$hbm -v tflops=$tflops -v layers=$layers '{
        count = split(sizes, size, ",")
        if (NF != layers) { print NF " intervals"; exit 1 }
        for (i = 2; i < NF; i++) {
            bytes = size[(i - 1) % count + 1] * 1048576
            memory = bytes / hbm / 1e3
            arithmetic = bytes * ops / tflops / 1e6
            takes = 2 + (memory > arithmetic ? memory : arithmetic)
            if ($i / takes > 1.01 || $i / takes < 0.99) { print "interval " i ": " $i " us, kernels: " takes; exit 1 }
        }
    }' "$work/times" || die "budget $1"
}

computes_what_kernels_take() {
    budget=$1 ops=$2
    shift 2
    program "$budget" "$ops" 14 "$@"
    intervals_are_kernels "$budget" "$ops"
    [ -z "$(column stretch)" ] || die "copies slow nothing, but: $(column stretch)"
}
case_computation_is_what_kernels_take_at_20_percent() { computes_what_kernels_take 22M 700; }
case_computation_is_what_kernels_take_at_40_percent() { computes_what_kernels_take 41M 700; }
case_computation_is_what_kernels_take_at_60_percent() { computes_what_kernels_take 60M 700; }
case_computation_is_what_kernels_take_at_80_percent() { computes_what_kernels_take 79M 700; }

# Of a copy that waits, the prediction counts the 10 us until it starts on a GPU; the simulated one does without them.
case_computation_in_graphs_is_what_kernels_take() { computes_what_kernels_take 41M 700 -- --graph; }
case_computation_in_graphs_that_change() { computes_what_kernels_take 41M 700 -- --graph --graph-keep updated; }
case_computation_in_graphs_in_pieces() { computes_what_kernels_take 60M 700 -- --graph --graph-parts 3; }

first=16 last=20
takes_what_is_predicted() {
    sizes=16,8,24
    measured=$(pass_ms $first $last "$@")
    within 2 "$(told predicted)" "$measured" "budget $1, predicted and measured"
}
case_passes_take_what_is_predicted_at_20_percent() { takes_what_is_predicted 40M 500; }
case_passes_take_what_is_predicted_at_40_percent() { takes_what_is_predicted 79M 500; }
case_passes_take_what_is_predicted_at_60_percent() { takes_what_is_predicted 117M 500; }
case_passes_take_what_is_predicted_at_80_percent() { takes_what_is_predicted 156M 500; }
case_passes_take_what_is_predicted_when_computation_is_long() { takes_what_is_predicted 79M 1400; }

# The first streamed weight takes the place of the last one, behind which resident ones come, and the pause.
case_passes_that_end_with_resident_weights_take_what_is_predicted() { takes_what_is_predicted 117M 900 SIM_CONTENTION=15; }

case_passes_of_graphs_take_what_is_predicted() { takes_what_is_predicted 120M 600 -- --graph; }
case_passes_of_long_graphs_take_what_is_predicted() { takes_what_is_predicted 79M 1400 -- --graph; }

# Copies slow kernels by a quarter: what kernels take alone is known all the same, and so is the quarter, as far as it is
# known when copies ran.
interference_is_the_simulated_one() {
    off=$1 budget=$2 ops=$3
    shift 3
    program "$budget" "$ops" 16 SIM_CONTENTION=25 "$@"
    intervals_are_kernels "$budget" "$ops"
    column stretch | awk -F, -v off="$off" '{
        for (i = 2; i < NF; i++) {
            if ($i < 0.25 - off || $i > 0.25 + off) { print "interval " i ": " $i; exit 1 }
        }
    }
    END { exit NR != 1 }' || die "budget $budget: copies add: $(column stretch)"
    told computes | grep -q . || die "nothing is told"
    grep 'a pass computes' "$work/log" | tail -n 1 | grep -q ' [0-9.]* % more beside copies' || die "it is not told"
}
case_interference_where_copies_are_long() { interference_is_the_simulated_one 0.02 41M 300; }
case_interference_where_computation_is_long() { interference_is_the_simulated_one 0.05 60M 900; }
case_interference_where_little_is_streamed() { interference_is_the_simulated_one 0.05 79M 700; }
case_interference_in_graphs() { interference_is_the_simulated_one 0.03 41M 700 -- --graph; }
case_interference_in_graphs_of_long_computation() { interference_is_the_simulated_one 0.05 60M 900 -- --graph; }
case_interference_in_graphs_in_pieces() { interference_is_the_simulated_one 0.24 41M 700 -- --graph --graph-parts 3; }

# And so it is known what is computed without: a pass takes as long either way, whether it is told apart or not.
interference_is_predicted() {
    takes_what_is_predicted 79M 1400 SIM_CONTENTION=40 "$@"
    slowed=$(told computes)
    program 79M 1400 $last "$@"
    within 1 "$slowed" "$(told computes)" "computation, with copies that slow it and without"
}
case_interference_is_predicted_where_computation_is_long() { interference_is_predicted; }
# What was timed under one plan tells what another takes.
case_interference_is_predicted_for_another_plan() {
    takes_what_is_predicted 117M 600 SIM_CONTENTION=25
    [ "$(plans)" = 2 ] || die "$(plans) plans"
}
case_interference_is_predicted_in_graphs() { interference_is_predicted -- --graph; }

# What a program takes more than when none is timed, for two that are hushed: what they do not overlap.
case_hushed_passes_take_copies_and_computation_at_most() {
    sizes=16,8,24
    for hushed in no yes; do
        if [ $hushed = yes ]; then
            program 79M 900 20 OVERSHOT_SUMMARY=1
        else
            program 79M 900 20 OVERSHOT_SUMMARY=1 OVERSHOT_PROFILE_CYCLES=0
        fi
        number virtual_ns "$work/report" >"$work/$hushed"
        sed -n 's/.* \([0-9]* misses\).*/\1/p' "$work/output" "$work/log" >"$work/misses.$hushed"
    done
    [ "$(plans)" = 1 ] || die "$(plans) plans"
    awk -v a="$(cat "$work/no")" -v b="$(cat "$work/yes")" -v computes="$(told computes)" -v copies="$(told copies)" \
        -v pass="$(told predicted)" 'BEGIN {
        more = (b - a) / 1e6
        least = computes + copies - pass # one of them
        exit !(more > least && more < 2 * 1.15 * least) # and what asking takes, in all that are timed
    }' || die "hushed passes take $(cat "$work/yes") - $(cat "$work/no") ns more"
    [ -s "$work/misses.yes" ] && diff "$work/misses.no" "$work/misses.yes" >&2 || die "misses of hushed passes count"
}

# Where a miss may refuse a launch there are none, and nothing is found.
case_no_pass_is_hushed_where_misses_are_errors() {
    program 41M 700 16 SIM_CONTENTION=25 OVERSHOT_STALL=error
    [ -n "$(column compute_us)" ] || die "nothing was timed"
    [ -z "$(column stretch)" ] || die "copies add: $(column stretch)"
}

# Nor does the table of OVERSHOT_TIMING show them, or a line say that copies were waited for.
case_hushed_passes_are_left_out() {
    program 41M 700 16 OVERSHOT_TIMING=16 OVERSHOT_STALL=warn "$@"
    ! grep 'was neither on the GPU' "$work/log" >&2 || die "misses are told"
    sed -n 's/^overshot: *[0-9][0-9]* *\([0-9.]*\) *[0-9.]* *[0-9.]* *[0-9.]*$/\1/p' "$work/log" >"$work/passes"
    [ "$(wc -l <"$work/passes")" -ge 6 ] || die "$(wc -l <"$work/passes") passes"
    awk -v pass="$(told predicted)" '$1 > 1.3 * pass { print $1 " ms"; exit 1 }' "$work/passes" || die "a long pass"
}
case_hushed_graphs_are_left_out() { case_hushed_passes_are_left_out -- --graph; }

# The host is far ahead of the device, and waits for it once in sixteen passes: after the first time there is a plan, and
# between that and the second one all passes are timed.
waits_now_and_then() {
    first=32 last=48
    takes_what_is_predicted 79M 600 -- --graph --sync-every 16 "$@"
}
case_passes_of_graphs_that_nobody_waits_for() { waits_now_and_then; }
case_passes_of_graphs_in_pieces_that_nobody_waits_for() { waits_now_and_then --graph-parts 4; }

# The curve of tests/sim/sim_clock.c.
case_link_is_the_simulated_one() {
    layers=4 sizes=64
    program 150M 0 6
    tr -d ' \n' <"$(echo "$work"/profile/*)" | sed -n 's/.*"link":\[\(.*\]\)\],"weights.*/\1/p' | sed 's/\],\[/\n/g; s/[][]//g' >"$work/link"
    awk -F, 'BEGIN { n = split("2097152 51 16777216 53.8 67108864 54.9 268435456 55.3", point, " ") }
    {
        for (i = 3; i < n && $1 > point[i]; i += 2) { }
        part = log($1 / point[i - 2]) / log(point[i] / point[i - 2])
        gbps = point[i - 1] + part * (point[i + 1] - point[i - 1])
        if ($2 / gbps > 1.01 || $2 / gbps < 0.99) { print $1 " bytes: " $2 " GB/s, simulated: " gbps; exit 1 }
    }
    END { if (NR < 6) { print NR " sizes"; exit 1 } }' "$work/link" || die "$(cat "$work/link")"
}

# A plan made for a guess gives way to a better one as soon as times are known.
case_times_lead_to_a_better_plan() {
    layers=15 sizes=16,8,24
    guessed=$(pass_ms 16 20 190M 400 OVERSHOT_PROFILE_CYCLES=0)
    timed=$(pass_ms 16 20 190M 400)
    [ "$(plans)" = 2 ] || die "$(plans) plans"
    awk -v a="$timed" -v b="$guessed" 'BEGIN { exit !(a < 0.97 * b) }' || die "$timed ms with times, $guessed without"
}

# As much is streamed as costs nothing.
case_mode_latency_gives_memory_back() {
    before=$(pass_ms 16 20 62M 900)
    after=$(pass_ms 16 20 62M 900 OVERSHOT_MODE=latency)
    within 1 "$after" "$before" "a pass in mode latency"
    held=$(sed -n 's/.*, plan [0-9]*: \([0-9]*\) MiB of weights resident.* ring \([0-9]*\) MiB.*/\1 \2/p' "$work/log" |
        tail -n 1 | awk '{ print $1 + $2 }')
    [ "${held:-1000}" -le 48 ] || die "weights and ring hold ${held:-?} MiB of 58"
}

case_mode_latency_keeps_what_it_needs() {
    before=$(pass_ms 16 20 62M 300)
    after=$(pass_ms 16 20 62M 300 OVERSHOT_MODE=latency)
    within 1 "$after" "$before" "a pass in mode latency"
}

# calls FROM TO [VARIABLE=VALUE...] [-- OPTION...] : "FUNCTION number" of passes FROM to TO
calls() {
    from=$1 to=$2
    shift 2
    for passes in "$from" "$to"; do
        program 41M 500 "$passes" "$@"
        tr -d ' ",' <"$work/report" | sed -n 's/^\(cu[A-Za-z0-9_]*\):/\1 /p' | sort >"$work/calls.$passes"
    done
    join "$work/calls.$from" "$work/calls.$to" | awk '{ print $1, $3 - $2 }'
}

# more_calls FROM TO "FUNCTION number,..." [-- OPTION...] : than without profiling.
more_calls() {
    from=$1 to=$2 expected=$3
    shift 3
    calls "$from" "$to" OVERSHOT_PROFILE_CYCLES=0 "$@" >"$work/off"
    calls "$from" "$to" "$@" >"$work/on"
    [ -s "$work/off" ] || die "no calls"
    join -a 2 "$work/off" "$work/on" | awk '{ print $1, (NF > 2 ? $3 - $2 : $2) }' | grep -v ' 0$' >"$work/more"
    echo "$expected" | tr ',' '\n' | diff - "$work/more" >&2 || die "other calls than these in passes $from to $to"
}

# But one span a pass, to see whether passes still take what they took (runtime/pace.h).
case_little_is_timed_afterwards() {
    more_calls 24 28 'cuEventElapsedTime 4,cuEventRecord 8,cuStreamQuery 4,cuThreadExchangeStreamCaptureMode 8'
}

# Of graphs, one launch in seven.
case_graphs_are_left_as_they_are_afterwards() {
    more_calls 24 38 'cuEventElapsedTime 2,cuEventRecord 4' -- --graph
}

case_none_are_taken_if_none_are_wanted() {
    program 41M 500 14 OVERSHOT_PROFILE_CYCLES=0
    if grep -q 'a pass computes' "$work/log" || grep -q '"compute_us"' "$work"/profile/*; then
        die "times"
    fi
}

# Two kinds of pass in turn: a plan for each that comes along would never end.
case_alternating_passes_keep_their_plan() {
    sizes=4,2,6
    program 30M 500 200 -- --order alternate
    [ "$(plans)" -le 4 ] || die "$(plans) plans in 200 passes"
}

# Graphs that find the plan's order to be another than theirs begin discovery anew: what was timed stays known.
case_times_outlast_a_study() {
    sizes=16,8,24
    program 120M 600 50 -- --graph --graph-turns 2
    [ "$(grep -c 'study [0-9]*:' "$work/log")" -ge 2 ] || die "there was no second study"
    [ "$(plans)" -le 4 ] || die "$(plans) plans"
}

# Three streams at once: what cannot be told apart is not made up.
case_streams_side_by_side() {
    sizes=4,2,6
    program 30M 500 40 -- --lanes 3 --streams 3
    [ "$(plans)" -le 3 ] || die "$(plans) plans in 40 passes"
}

"case_$case"
