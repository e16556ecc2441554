#!/bin/sh
# test_tool.sh TOOL TRACES CASE : one case of the tests of `overshot plan`. Exit status 0 or 1.
set -eu

tool=$1 traces=$2 case=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check STATUS OUTPUT ERRORS ARGUMENT... : runs `overshot plan`; patterns are those of `case`.
check() {
    want_status=$1 want_output=$2 want_errors=$3
    shift 3
    status=0
    "$tool" plan "$@" >"$work/output" 2>"$work/errors" || status=$?
    output=$(cat "$work/output") errors=$(cat "$work/errors")
    good=yes
    [ "$status" = "$want_status" ] || good=no
    # shellcheck disable=SC2254 # patterns are meant
    case $output in $want_output) ;; *) good=no ;; esac
    # shellcheck disable=SC2254
    case $errors in $want_errors) ;; *) good=no ;; esac
    [ $good = yes ] || {
        printf 'plan %s\nstatus %s, expected %s\noutput: %s\n  expected: %s\nerrors: %s\n  expected: %s\n' \
            "$*" "$status" "$want_status" "$output" "$want_output" "$errors" "$want_errors" >&2
        exit 1
    }
}

number() { # KEY FILE : the first number of that key in a JSON file
    grep -o "\"$1\": *[0-9.]*" "$2" | head -n 1 | grep -o '[0-9.]*$'
}

case_one_budget() {
    check 0 'decode: 226 weights, 14.96 GiB; pass (226 touches); link 5*budget     8.00 GiB*at least*gap 1.0*resident*streamed*read sparsely*ring*strategy*' '' \
        "$traces/decode.json"
    check 0 '*budget     4.00 GiB*' '' "$traces/decode.json" --budget 4G
    check 0 '*budget     7.48 GiB*' '' "$traces/decode.json" --budget=50%
}

case_a_curve() {
    check 0 '*budget GiB*' '' "$traces/moe.json" --budget 8G..80G --points 5
    [ "$(wc -l <"$work/output")" = 7 ]
    # Never slower with more.
    tail -n 5 "$work/output" | awk '$3 > last && NR > 1 { exit 1 } { last = $3 }'
}

case_the_least_that_works_to_everything() {
    sed 's/"budget": [0-9]*/"budget": 0/' "$traces/tied.json" >"$work/profile.json"
    check 0 '*budget GiB*' '' "$work/profile.json" --points 4
    tail -n 1 "$work/output" | awk '{ exit !($5 == "1.0000" && $7 == "0.00") }'
}

case_json() {
    check 0 '{*"schema": "overshot plan"*"weights": ?*"copies": ?*}' '' "$traces/decode.json" --json
    check 0 '{*"points": ?*}' '' "$traces/decode.json" --json --budget 2G..4G --points 3
    [ "$(grep -o '"cycle_ms"' "$work/output" | wc -l)" = 3 ]
    command -v python3 >/dev/null || return 0
    "$tool" plan "$traces/diffusion.json" --json | python3 -c '
import json, sys
plan = json.load(sys.stdin)
assert len(plan["weights"]) == 370 and plan["gap"] >= 1
assert all(w["tier"] != "streamed" or w["ring_offset"] < plan["ring_bytes"] for w in plan["weights"])
assert any(c.get("in_repetitions") for c in plan["copies"])'
}

case_a_picture() {
    check 0 '*' '' "$traces/decode.json" --svg "$work/curve.svg" --points 6
    grep -q '^<svg xmlns' "$work/curve.svg" && tail -n 1 "$work/curve.svg" | grep -q '^</svg>'
    [ "$(grep -c '<circle' "$work/curve.svg")" = 6 ] && [ "$(grep -c '<polyline' "$work/curve.svg")" = 3 ]
    sed 's/"name": "decode"/"name": "a<b \& c"/' "$traces/decode.json" >"$work/profile.json"
    check 0 '*' '' "$work/profile.json" --svg "$work/curve.svg" --points 2
    grep -q 'a&lt;b &amp; c' "$work/curve.svg"
    if command -v xmllint >/dev/null; then
        xmllint --noout "$work/curve.svg"
    fi
    check 1 '*' 'overshot: /nonexistent/x.svg: No such file or directory' "$traces/decode.json" --svg /nonexistent/x.svg
}

case_explain() {
    check 0 'embedding (0): *1002 MiB*host: read sparsely' '' "$traces/decode.json" --explain embedding
    check 0 'embedding (0)*' '' "$traces/decode.json" --explain 0
    name=$("$tool" plan "$traces/decode.json" --json | sed -n 's/.*{"name": "\([^"]*\)", "tier": "streamed".*/\1/p' | head -n 1)
    check 0 "$name (*streamed: used in the cycle*in the ring at * its pages are also those of *copied for touch *after touch *waits*" '' \
        "$traces/decode.json" --explain "$name"
    check 1 '' '*no weight is named "nothing"*' "$traces/decode.json" --explain nothing
    check 1 '' '*no weight is named "226"*' "$traces/decode.json" --explain 226
}

case_another_link() {
    "$tool" plan "$traces/decode.json" --json >"$work/measured"
    "$tool" plan "$traces/decode.json" --json --link 27.65 >"$work/half"
    awk -v a="$(number bound_ms "$work/measured")" -v b="$(number bound_ms "$work/half")" \
        'BEGIN { exit !(b / a > 1.95 && b / a < 2.05) }'
}

case_options_of_the_planner() {
    check 0 '*ring       *64 MiB*' '' "$traces/many-small.json" --ring 64M
    check 0 '*resident   0 weights*' '' "$traces/decode.json" --tiers streamed,host
    check 0 '*strategy   greedy*' '' "$traces/decode.json" --strategy greedy
    check 0 '*strategy   nth*' '' "$traces/decode.json" --strategy nth:4
    check 0 '*strategy   knapsack*' '' "$traces/decode.json" --strategy knapsack
    check 0 '*strategy   spread*' '' "$traces/decode.json" --strategy spread
    check 0 '*more than the limit of host memory*' '' "$traces/decode.json" --host-limit 1G
}

case_the_least_memory() {
    "$tool" plan "$traces/prefill.json" --json --mode latency --budget 14G >"$work/output"
    awk -v used="$(number used_bytes "$work/output")" -v cycle="$(number cycle_ms "$work/output")" \
        -v all="$(number all_resident_ms "$work/output")" \
        'BEGIN { exit !(used < 4 * 1073741824 && cycle <= all * 1.0002) }'
    "$tool" plan "$traces/prefill.json" --json --mode latency --budget 14G --slowdown 20 >"$work/slower"
    awk -v a="$(number used_bytes "$work/output")" -v b="$(number used_bytes "$work/slower")" 'BEGIN { exit !(b < a) }'
}

case_wrong_arguments() {
    check 125 '' '*no profile is named*' --json
    check 125 '' '*unexpected "b"*' a b
    check 125 '' '*--budget=lots*' a --budget lots
    check 125 '' '*--budget=1M*' a --budget 1M
    check 125 '' '*--budget=0%*' a --budget 0%
    check 125 '' '*--budget=4G..*' a --budget 4G..
    check 125 '' '*--points=1*' a --points 1
    check 125 '' '*--points=2.5*' a --points 2.5
    check 125 '' '*--link=0*' a --link 0
    check 125 '' '*it takes*nth:N*' a --strategy nth
    check 125 '' '*it takes*' a --strategy nth:0
    check 125 '' '*it takes*' a --mode quick
    check 125 '' '*it takes*' a --tiers device
    check 125 '' '*the first budget of a curve is larger than the last*' "$traces/decode.json" --budget 8G..4G
    check 125 '' '*unrecognized option*' a --nothing
}

case_files_that_are_no_profile() {
    check 1 '' 'overshot: /nonexistent: No such file or directory' /nonexistent
    check 1 '' 'overshot: /dev/null: line 1: *' /dev/null
    echo '{"schema": "overshot plan"}' >"$work/plan.json"
    check 1 '' 'overshot: *plan.json: it is no profile: "schema"*' "$work/plan.json"
    head -c 1000 "$traces/decode.json" >"$work/half.json"
    check 1 '' 'overshot: *half.json: line *' "$work/half.json"
}

case_help() {
    check 0 'Usage: overshot plan*--budget=SIZE*--explain=WEIGHT*Exit status*' '' --help
}

case_plans_are_repeatable() {
    "$tool" plan "$traces/pyramid.json" --json >"$work/a"
    "$tool" plan "$traces/pyramid.json" --json >"$work/b"
    cmp "$work/a" "$work/b"
}

"case_$case"
