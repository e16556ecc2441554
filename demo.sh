#!/usr/bin/env bash
# ./demo.sh [scribe arguments] : a small language model writes text, first as it is, then with a third of its weights'
# size as device memory and overshot in front of the driver. Shows that the text is the same, what the memory was and
# what the link did. On the machine's GPU where there is one (DEMO_DRIVER=sim: not even then), else on the simulated
# driver of tests/sim. Exit status 0 only if the text is the same, weights were streamed, and the budget was kept.
# DEMO_BUDGET=SIZE : another budget, in bytes or as 20M.   BUILD=FOLDER : what was built there, instead of building.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
# shellcheck source=cmake/setup.sh
. cmake/setup.sh

if [ -n "${BUILD:-}" ]; then
    out=$(cd "$BUILD" && pwd)
else
    ov_setup
    echo 'building ...' >&2
    ov_build default
    out=$PWD/build/default
fi
ov_clean_environment

scribe=$out/tests/apps/scribe weights=tests/apps/scribe/scribe.safetensors
arguments=("$@")
[ $# -gt 0 ] || arguments=(--prompt 'In the beginning ' --tokens 240 --seed 7)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${DEMO_DRIVER:-}" != sim ] && command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    driver="$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | sed 's/, /, driver /')"
    simulated=no
else
    driver='simulated (no GPU is needed; times are those of its virtual clock)'
    simulated=yes
    export LD_LIBRARY_PATH=$out/tests/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

fail() {
    echo "$*" >&2
    exit 1
}

run() { # NAME COMMAND... : text to $work/NAME.text, what was said to $work/NAME.log
    local name=$1 status=0
    shift
    SIM_REPORT=$work/$name.json "$@" "$scribe" --weights "$weights" --stats "${arguments[@]}" \
        >"$work/$name.text" 2>"$work/$name.log" || status=$?
    if [ $status != 0 ]; then
        cat "$work/$name.log" >&2
        fail "scribe ended with status $status ($name overshot)"
    fi
}

# The number in parentheses where a log fits the pattern first; 0 if it does not.
said() { # NAME PATTERN
    local log
    log=$(<"$work/$1.log")
    if [[ $log =~ $2 ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}

counted() { # KEY NAME : by the simulated driver
    grep -o "\"$1\": *[0-9]*" "$work/$2.json" | head -n 1 | grep -o '[0-9]*$'
}

calc() { # FORMAT EXPRESSION
    awk "BEGIN { printf \"$1\", $2 }"
}

bytes=$(stat -c %s "$weights")
budget=${DEMO_BUDGET:-$((bytes / 3))}
run without env
run with "$out/tools/overshot" run --budget="$budget" --summary --

cmp -s "$work/without.text" "$work/with.text" || fail 'the texts differ'
streamed=$(said with ' ([0-9]+) streamed')
rate=$(said with '; ([0-9.]+) GB/s of')
peak=$(said with ' of ([0-9.]+) GB/s')
budget_bytes=$(($(said with ' of ([0-9]+) MiB budget') << 20)) # in whole pages
held=$(said with 'peak ([0-9]+) of')
if [ "$streamed" = 0 ]; then
    cat "$work/with.log" >&2
    fail 'nothing was streamed'
fi
if [ $simulated = yes ]; then
    memory_without=$(counted peak_bytes without)
    memory_with=$(counted peak_bytes with)
    peak=55.2 # of the simulated link
else
    memory_without=$(calc %.0f "1e6 * $(said without 'device memory in use ([0-9.]+) MB')")
    memory_with=$((held << 20))
fi

row() { printf '%-20s %-34s %s\n' "$@"; }
mb() { calc '%.1f MB' "$1 / 1e6"; }
md5() { md5sum <"$work/$1.text" | cut -d ' ' -f 1; }
token() { echo "$(said "$1" '([0-9.]+) ms per token') ms"; }

cat "$work/without.text"
echo
echo "driver    $driver"
echo "weights   $(mb "$bytes")"
echo "budget    $(mb "$budget_bytes")"
echo
row '' 'without overshot' 'with overshot'
row 'md5 of the text' "$(md5 without)" "$(md5 with)"
row 'peak device memory' "$(mb "$memory_without")" "$(mb "$memory_with")"
row 'time per token' "$(token without)" "$(token with)"
row 'weights streamed' 'none' "$(mb $((streamed << 20))) for every token"
row 'copies to the device' '-' "$rate GB/s, $(calc '%.0f %%' "100 * $rate / $peak") of the link's peak of $peak GB/s"
echo
grep '^overshot: ' "$work/with.log" || true

[ "$memory_with" -le "$budget_bytes" ] || fail 'the budget was exceeded'
echo 'same text'
