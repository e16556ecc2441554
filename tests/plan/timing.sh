#!/bin/sh
# timing.sh LIBRARY DRIVER STACK TOOL CASE : the table of OVERSHOT_TIMING against the simulated driver's clock. Exit
# status 0 or 1.
# shellcheck source=simulated.sh
. "$(dirname "$0")/simulated.sh"
link=51000000 # bytes a ms: what the simulated link does with copies of 2 MiB

# program PASSES OPTION... -- VARIABLE=VALUE... : ten weights of 2 MiB, of which eight are streamed; what is logged goes
# to errors. It writes what it writes alone. The first plan stays.
program() {
    model="--layers 10 --bytes 2M --width 64 --passes $1"
    shift
    while [ "$1" != -- ]; do
        model="$model $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # options are words
    watched OVERSHOT_BUDGET=14M OVERSHOT_PROFILE_CYCLES=0 SIM_REPORT="$work/report" OVERSHOT_SUMMARY=1 "$@" \
        "$stack" $model >"$work/output" 2>"$work/errors" || die "it failed"
    # shellcheck disable=SC2086
    same_as_alone $model
}

# Rows of single weights, and of passes, without the beginning of the lines.
weights() {
    awk '$2 == "weight" { on = 1; next } $2 == "all" || $2 == "pass" { on = 0 } on { $1 = ""; print }' "$work/errors"
}
passes() {
    awk '$2 == "pass" { on = 1; next } !/^overshot: +[0-9]/ { on = 0 } on { $1 = ""; print }' "$work/errors"
}

# Within so much percent, and what a table with three decimals loses.
near() {
    awk -v a="$1" -v b="$2" -v percent="$3" -v slack="${4:-0.002}" 'BEGIN {
        d = a > b ? a - b : b - a
        exit !(d <= b * percent / 100 + slack)
    }' || die "$1 is not $2"
}

case_copies_take_what_the_link_takes() {
    program 12 -- OVERSHOT_TIMING=5
    [ "$(weights | wc -l)" = 8 ] || die "rows of weights: $(weights | wc -l)"
    weights | while read -r weight allocation _ mib copies copy rest; do
        near "$copies" 1 0 0
        [ "$allocation" = $((weight + 1)) ] || die "weight $weight of allocation $allocation"
        [ -n "$rest" ] || die "columns are missing"
        near "$copy" "$(awk -v b="$mib" -v l=$link 'BEGIN { print b * 1048576 / l }')" 1
    done
}

case_columns_add_up() {
    program 12 --ops 400 -- OVERSHOT_TIMING=4
    set -- "$(weights | awk '{ s += $6 } END { print s }')" "$(weights | awk '{ s += $8 } END { print s }')" \
        "$(weights | awk '{ s += $10 } END { print s }')"
    all=$(awk '$2 == "all" { print $5, $7, $8 }' "$work/errors")
    near "$1" "$(echo "$all" | cut -d' ' -f1)" 0 0.005
    near "$2" "$(echo "$all" | cut -d' ' -f2)" 0 0.005
    near "$3" "$(echo "$all" | cut -d' ' -f3)" 0 0.005
    [ "$(passes | wc -l)" = 4 ] || die "rows of passes"
    passes | while read -r _ time copy wait compute; do
        near "$time" "$(awk -v a="$wait" -v b="$compute" 'BEGIN { print a + b }')" 0
        near "$copy" "$1" 1 0.005
    done
}

# The difference of two runs is two passes, of the same clock.
case_passes_are_those_of_the_clock() {
    for passes in 10 12; do
        program $passes --ops 400 -- OVERSHOT_TIMING=3
        grep -o '"virtual_ns": *[0-9]*' "$work/report" | grep -o '[0-9]*$' >"$work/$passes"
    done
    near "$(passes | tail -n 1 | awk '{ print $2 }')" \
        "$(awk -v a="$(cat "$work/10")" -v b="$(cat "$work/12")" 'BEGIN { print (b - a) / 2 / 1e6 }')" 1
}

case_weights_that_a_pass_uses_twice() {
    program 30 --order alternate -- OVERSHOT_TIMING=3
    weights | awk '{ copies += $5 } $5 > 1.5 { twice++ } END { exit !(twice > 0 && copies > 8) }' || die "none twice"
}

case_graphs_are_a_line() {
    program 16 --graph -- OVERSHOT_TIMING=3
    [ "$(weights | wc -l)" = 0 ] || die "rows of weights"
    line=$(grep 'graphs with copies in them: 8.00 copies, ' "$work/errors") || die "no line"
    took=$(echo "$line" | sed 's/.*copies, \([0-9.]*\) from launch to end.*/\1/')
    time=$(passes | tail -n 1 | awk '{ print $2 }')
    near "$took" "$time" 3
}

# A pass is all of its graphs, and what is between them.
case_graphs_in_pieces() {
    program 16 --graph --graph-parts 3 -- OVERSHOT_TIMING=3
    grep -q 'graphs with copies in them: 8.00 copies, ' "$work/errors" || die "no line"
}

# The last plan is made at the very end: no pass is over under it.
case_another_plan_keeps_the_old_table() {
    for passes in 14 8 13 11 9 16; do # some end soon after a plan
        program $passes --realloc 2 -- OVERSHOT_TIMING=3
        plan=$(sed -n 's/^overshot: device 0: plan \([0-9]*\), the last.*/\1/p' "$work/errors")
        plans=$(sed -n 's/.* \([0-9]*\) plans, .*/\1/p' "$work/errors")
        if [ "${plan:-$plans}" -lt "$plans" ]; then
            [ "$(passes | wc -l)" = 3 ] || die "no passes"
            return
        fi
    done
    die "plan ${plan:-none} of $plans"
}

# Nobody waits for the device: what it has not done in time is left out, and later passes are whole. At the end it has
# done half of what was asked of it.
case_far_behind() {
    program 900 --sync none -- OVERSHOT_TIMING=3
    left=$(sed -n 's/.*passes (\([0-9]*\) left out).*/\1/p' "$work/errors")
    [ "${left:-0}" -gt 0 ] || die "${left:-no} passes left out"
    [ "$(weights | wc -l)" = 8 ] || die "rows of weights"
    passes | awk -v last=0 '$1 <= last || $3 < 0.3 { exit 1 } { last = $1 } END { exit !(last > 200) }' || die "passes"
}

# The queue holds what eight weights take in 128 passes, but for one touch: the last of these passes loses its last, and
# the next one begins with a queue that is empty again. The one that is not whole is left out all the same.
case_what_is_lost_at_the_end_of_a_pass() {
    program 386 --ops 1e6 --sync-every 128 -- OVERSHOT_TIMING=4
    left=$(sed -n 's/.*passes (\([0-9]*\) left out).*/\1/p' "$work/errors")
    [ "${left:-0}" = 1 ] || die "${left:-no} passes left out"
    [ "$(weights | wc -l)" = 8 ] || die "rows of weights"
    weights | awk '$5 != 1 { exit 1 }' || die "a weight that is not copied once a pass"
}

case_no_plan() {
    program 1 -- OVERSHOT_TIMING=3
    grep -q 'OVERSHOT_TIMING: no pass was timed from beginning to end' "$work/errors" || die "nothing is said"
}

case_not_asked_for() {
    program 12 --
    ! grep -q 'passes\|pass ' "$work/errors" || die "a table"
}

"case_$case"
