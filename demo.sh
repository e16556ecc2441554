#!/usr/bin/env bash
# ./demo.sh [scribe arguments] : a small language model writes text, first as it is, then with a third of its weights'
# size as device memory and libovershot.so in front of it. Shows that the text is the same and what the memory was. On
# the machine's GPU where there is one (DEMO_DRIVER=sim: not even then), else on the simulated driver of tests/sim.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
. cmake/setup.sh

ov_setup
ov_clean_environment
echo 'building ...' >&2
ov_build default

out=build/default scribe=build/default/tests/apps/scribe weights=tests/apps/scribe/scribe.safetensors
arguments=("$@")
[ $# -gt 0 ] || arguments=(--prompt 'In the beginning ' --tokens 240 --seed 7)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${DEMO_DRIVER:-}" != sim ] && command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    driver="$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | sed 's/, /, driver /')"
    simulated=
else
    driver='simulated (tests/sim: no GPU is needed; times are those of its virtual clock)'
    simulated=yes
    export LD_LIBRARY_PATH=$PWD/$out/tests/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

number() { # KEY FILE : the first number of that key in a JSON file
    grep -o "\"$1\": *[0-9.]*" "$2" | head -n 1 | grep -o '[0-9.]*$'
}

in_mb() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }

run() { # NAME COMMAND... : text to $work/NAME.text, what it said to $work/NAME.log
    local name=$1
    shift
    SIM_REPORT=$work/$name.json "$@" "$scribe" --weights "$weights" --stats "${arguments[@]}" \
        >"$work/$name.text" 2>"$work/$name.log" || {
        status=$?
        cat "$work/$name.log" >&2
        echo "scribe ended with status $status ($name)" >&2
        exit 1
    }
}

bytes=$(stat -c %s "$weights")
budget=$((bytes / 3))
run without env
run with "$out/tools/overshot" run --budget="$budget" --summary --

cat "$work/without.text"
echo
echo "driver        $driver"
echo "weights       $(in_mb "$bytes")"
echo "budget        $(in_mb "$budget")   (a third)"
for name in without with; do
    echo "$name overshot"
    echo "  md5 of text $(md5sum <"$work/$name.text" | cut -d ' ' -f 1)"
    if [ -n "$simulated" ]; then
        echo "  peak memory $(in_mb "$(number peak_bytes "$work/$name.json")")   (counted by the driver)"
    fi
    sed 's/^/  /' "$work/$name.log"
done
if ! cmp -s "$work/without.text" "$work/with.text"; then
    echo 'the texts differ' >&2
    exit 1
fi
if [ -n "$simulated" ] && [ "$(number peak_bytes "$work/with.json")" -gt "$budget" ]; then
    echo 'the budget was exceeded' >&2
    exit 1
fi
echo 'same text'
