#!/bin/sh
# record.sh LIBRARY DRIVER STACK TOOL CASE T_REMEMBER : profiles that a program leaves (OVERSHOT_PROFILE_DIR), on the
# simulated driver. Exit status 0 or 1.
# shellcheck source=simulated.sh
. "$(dirname "$0")/simulated.sh"
remember=$6

# program FOLDER : a model of nine weights, 5 of 4 and 4 of 6 MiB, in the order of its layers.
program() {
    watched OVERSHOT_PROFILE_DIR="$1" OVERSHOT_BUDGET=30M OVERSHOT_LOG=warn \
        "$stack" --layers 9 --sizes 4M,6M --passes 6 >"$work/output" 2>"$work/errors"
}

case_is_what_overshot_plan_reads() {
    program "$work/new"
    set -- "$work"/new/*
    if [ $# != 1 ] || ! basename "$1" | grep -qx 'stack-[0-9a-f]\{16\}-device0.json'; then
        die "files: $*"
    fi
    "$tool" plan "$1" | grep -q '^stack: 9 weights, 44 MiB; cycle (9 touches); link 5'
    "$tool" plan "$1" --json >"$work/plan"
    [ "$(grep -c '"name": "weight [0-8]"' "$work/plan")" = 9 ]
    # Equal bytes have equal hashes, in every run.
    grep -o '"hash": "[0-9a-f]*"' "$1" >"$work/first"
    [ "$(sort -u "$work/first" | wc -l)" = 9 ]
    rm "$1"
    program "$work/new"
    grep -o '"hash": "[0-9a-f]*"' "$work"/new/* >"$work/second"
    cmp "$work/first" "$work/second"
}

case_cannot_be_written() {
    : >"$work/file"
    program "$work/file"
    grep -q 'no profile is written: .*: Not a directory' "$work/errors"
    same_as_alone --layers 9 --sizes 4M,6M --passes 6
}

# What was freed since the plan was made is in no profile: it would be looked for in vain.
case_has_what_there_is() {
    env OVERSHOT_PROFILE_DIR="$work/new" OVERSHOT_BUDGET=24M LD_PRELOAD="$library" LD_LIBRARY_PATH="$driver" \
        "$remember" frees_half
    for file in "$work"/new/*; do
        [ "$(grep -c '{"bytes"' "$file")" = "$(grep -c '"hash"' "$file")" ]
    done
    grep -q '"weights"' "$work"/new/*
}

# Somebody who may write to the folder, too, has guessed where the draft will be.
case_follows_no_link() {
    program "$work/new"
    set -- "$work"/new/*
    rm "$1"
    echo mine >"$work/victim"
    # shellcheck disable=SC2016 # it is the child's number
    env OVERSHOT_PROFILE_DIR="$work/new" OVERSHOT_BUDGET=30M LIBRARY="$library" LD_LIBRARY_PATH="$driver" \
        sh -c 'ln -s "$1" "$2.$$"; shift 2; LD_PRELOAD=$LIBRARY exec "$@"' sh "$work/victim" "$1" \
        "$stack" --layers 9 --sizes 4M,6M --passes 6 >"$work/output" 2>"$work/errors"
    [ "$(cat "$work/victim")" = mine ]
    [ -f "$1" ] && [ ! -L "$1" ]
    "$tool" plan "$1" | grep -q '^stack: 9 weights'
}

case_is_not_asked_for() {
    program ''
    [ ! -s "$work/errors" ] && [ "$(find "$work" -name '*.json' | wc -l)" = 0 ]
}

"case_$case"
