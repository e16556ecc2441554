#!/bin/sh
# remember.sh LIBRARY DRIVER STACK TOOL CASE PROGRAM : profiles that the next start reads (OVERSHOT_PROFILE), on the
# simulated driver. PROGRAM is t_remember. Whatever is found, a program writes what it writes alone. Exit status 0 or 1.
# shellcheck disable=SC2015,SC2086 # options are words
# shellcheck source=simulated.sh
. "$(dirname "$0")/simulated.sh"
kept=$work/kept log=$work/log
export OVERSHOT_LOG=info OVERSHOT_LOG_FILE="$log" OVERSHOT_SUMMARY=1
model='--layers 9 --sizes 4M,6M --passes 8'

# with [VARIABLE=VALUE...] COMMAND... : in a folder of profiles that is kept, with a budget that the driver counts, too.
with() {
    rm -f "$log" "$work/trace" # the driver appends
    watched OVERSHOT_BUDGET="${budget:-30M}" SIM_LIMIT="${SIM_LIMIT-${budget:-30M}}" OVERSHOT_PROFILE_DIR="$kept" \
        "$@" >"$work/output" 2>"$work/errors" || die "status $? of: $*"
    ! grep '^sim: ' "$work/errors" >&2 || die "the driver complains"
}

# start [VARIABLE=VALUE...] [-- OPTION...] : the model, or another; it computes what it computes alone.
start() {
    variables=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        variables="$variables $1"
        shift
    done
    [ $# -gt 0 ] && shift || set -- $model
    with $variables "$stack" "$@"
    same_as_alone "$@"
}

rig() { # CASE
    with "$program" "$1"
}

said() { # TEXT...: each is in the log
    for text; do grep -qF -- "$text" "$log" || die "the log does not say: $text"; done
}
unsaid() {
    for text; do if grep -qF -- "$text" "$log"; then die "the log says: $text"; fi; done
}
at_once='its plan is made at once'
adopted() { said "$at_once"; }
refused() { unsaid "$at_once"; }
file() { # the only one
    set -- "$kept"/*.json
    [ $# = 1 ] && [ -e "$1" ] || die "files: $*"
    echo "$1"
}
edit() { # SED
    sed -i "$1" "$(file)"
}

# ---- a match

case_first_pass_is_a_steady_one() {
    start
    alone=$(LD_LIBRARY_PATH="$driver" "$stack" $model --times | sed -n 's/^pass 0 \([0-9.]*\) .*/\1/p')
    with "$stack" $model --times
    adopted
    said '1 plans'
    # What the first pass takes more than later ones without overshot, it may take with it, too.
    awk -v alone="$alone" '/^pass/ { ms[$2] = $3 } END { exit !(ms[0] <= alone + 1.1 * ms[7]) }' "$work/output" ||
        die "$(cat "$work/output")"
}

case_nothing_is_looked_at_in_the_first_pass() {
    start
    start SIM_TRACE="$work/trace"
    adopted
    # Between the launches of the first pass there are none of ours.
    sed -n '/"stack_one"/,$p' "$work/trace" | head -n 9 >"$work/pass"
    [ "$(grep -c '"stack_one"' "$work/pass")" = 9 ] || die "$(cut -c1-60 "$work/pass")"
    # Without what is known of kernels, there are.
    edit 's/"code": "[0-9a-f]*/"code": "00000000000000000000000000000001/; s/"code": "\([0-9a-f]\{32\}\)[0-9a-f]*/"code": "\1/'
    start SIM_TRACE="$work/trace"
    adopted
    sed -n '/"stack_one"/,$p' "$work/trace" | head -n 9 >"$work/pass"
    [ "$(grep -c '"stack_one"' "$work/pass")" -lt 9 ] || die "kernels of other code are trusted"
}

case_plan_of_the_first_start_comes_later() {
    start SIM_TRACE="$work/trace"
    refused
    sed -n '/"stack_one"/,$p' "$work/trace" | head -n 9 >"$work/pass"
    [ "$(grep -c '"stack_one"' "$work/pass")" -lt 9 ] || die "nothing was looked at"
}

case_file_stays_as_it_is() {
    start
    set -- "$(file)"
    cp "$1" "$work/before"
    touch -d '2001-01-01' "$1"
    start
    cmp "$work/before" "$1"
    unsaid "profile: $1"
    [ -z "$(find "$1" ! -newermt 2002-01-01)" ] || die "its date says that nobody uses it"
}

case_study_that_finds_the_same_changes_nothing() {
    start -- $model --passes 30
    start -- $model --passes 30
    adopted
    said '1 plans'
}

case_other_budget() {
    start
    for budget in 20M 26M 40M; do
        start
        adopted
    done
}

case_several_models_side_by_side() {
    start -- $model --seed 1
    start -- $model --seed 2
    start -- --layers 12 --bytes 4M --passes 8
    [ "$(find "$kept" -name '*.json' | wc -l)" = 3 ] || die "$(ls "$kept")"
    for seed in 2 1; do
        start -- $model --seed $seed
        adopted
    done
    start -- --layers 12 --bytes 4M --passes 8
    adopted
    [ "$(find "$kept" -name '*.json' | wc -l)" = 3 ] || die "$(ls "$kept")"
}

# A model whose first layers are all of another one is taken for what it is.
case_larger_of_two_that_begin_alike() {
    start -- --layers 8 --bytes 4M --passes 8
    start -- --layers 12 --bytes 4M --passes 8
    start -- --layers 12 --bytes 4M --passes 8
    said 'all 12 weights of the profile'
    start -- --layers 8 --bytes 4M --passes 8
    [ "$(grep -c "$at_once" "$log")" -le 1 ] || die "more than one"
}

case_only_the_newest_sixteen_are_read() {
    start
    name=$(file)
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        echo "{}" >"$kept/stack-$i.json"
    done
    touch -d '2001-01-01' "$name"
    start OVERSHOT_PROFILE=read
    adopted
    echo "{}" >"$kept/stack-16.json"
    start OVERSHOT_PROFILE=read
    refused
}

case_weights_in_another_order() {
    rig plain
    rig other_order
    adopted
}

# ---- no match

# differs TEXT SED : the field is named, with both values.
differs() {
    start
    edit "$2"
    start OVERSHOT_PROFILE=read
    refused
    said "$1"
}

case_other_program() {
    differs 'its program is "other", not "stack"' 's/"name": "stack"/"name": "other"/'
}
case_other_device() {
    differs 'its device is "Larger GPU", not "Simulated GPU"' 's/"Simulated GPU"/"Larger GPU"/'
}
case_no_device() {
    differs 'its device is "", not "Simulated GPU"' 's/"name": "Simulated GPU", //'
}
case_other_memory() {
    start
    start SIM_MEM=4G
    refused
    said "its device's memory in bytes is 8589934592, not 4294967296"
}
case_other_driver() {
    start
    start SIM_DRIVER_VERSION=12080
    refused
    said "its driver's version is 13000, not 12080"
}
case_other_version() {
    differs 'its version is 2, not 1' 's/"version": 1,/"version": 2,/'
}
case_other_size() {
    differs 'weight 3 (6291456 bytes of allocation 4): its size differs: the allocation has 6291456 bytes, not 8388608' \
        's/"allocation": 4, "offset": 0, "allocation_bytes": 6291456/"allocation": 4, "offset": 0, "allocation_bytes": 8388608/'
}
case_other_content() {
    start
    start -- $model --seed 7
    refused
    said 'is of other weights, 0 of its 9 are there: weight 0 (4194304 bytes of allocation 1): its content differs'
}
case_one_byte() {
    rig plain
    rig one_byte
    refused
    said '9 of its 10 are there: weight 6 (4194304 bytes of allocation 7): its content differs'
}
case_one_weight_less() {
    rig plain
    rig one_less
    refused
    said '9 of its 10 are there: weight 9 (4194304 bytes of allocation 10): it is missing'
}
case_no_hashes() {
    differs 'its content differs' 's/"hash": "[0-9a-f]*", //'
}

# Those that are known are streamed at once; the others are found as ever.
case_more_weights() {
    rig plain
    rig three_more
    [ "$(find "$kept" -name '*.json' | wc -l)" = 2 ] || die "$(ls "$kept")"
    rig three_more
    said 'all 13 weights of the profile'
}

case_slower_link() {
    start
    start SIM_LINK_GBPS=52
    adopted
    unsaid 'its times are not used'
    start SIM_LINK_GBPS=20
    adopted
    said 'the link copies 19.' 'as in the profile: its times are not used'
}

# ---- what is no less safe than without

case_slices_that_are_fused_now() {
    rig slices_apart
    rig slices_together
    refused
    said 'it was not sure in time that its weights are used alike'
}

case_slices_wait_for_a_pass() {
    rig slices_apart
    with SIM_TRACE="$work/trace" "$program" slices_apart
    adopted
    grep -q ', plan 1: .* [1-9][0-9]* streamed' "$log" || die "nothing is streamed"
}

case_kernel_that_computes_addresses() {
    rig plain
    rig computes_addresses
    adopted
    said 'computes addresses, and did not in the profile, which is given up'
    rig computes_addresses
    rig computes_addresses
}

case_kernel_that_changes_weights() {
    rig plain
    rig changes_a_weight
    adopted
}

case_zeroes_are_no_weight() {
    rig zeroes_read
    for left in "$kept"/*; do
        [ "$(grep -o '"hash"' "$left" | wc -l)" = 11 ] || rm "$left"
    done
    rig zeroes_written
    refused
    said '10 of its 11 are there: weight 10 (4194304 bytes of allocation 11): its content differs'
}

# ---- files

case_cut_anywhere() {
    start
    cp "$(file)" "$work/whole"
    size=$(wc -c <"$work/whole")
    for k in 0 1 2 3 5 7 9 11 13 14 15 16 17 18 19; do
        at=$((size * k / 20))
        head -c $at "$work/whole" >"$kept/stack-a-device0.json"
        start OVERSHOT_PROFILE=read
        said "profile $kept/stack-a-device0.json is not used: line "
        adopted # the other one
    done
    rm "$kept"/stack-a*
}

# damaged TEXT SED : a warning says where.
damaged() {
    cp "$work/whole" "$(file)"
    edit "$2"
    cmp -s "$work/whole" "$(file)" && die "not damaged: $2"
    start OVERSHOT_LOG=warn OVERSHOT_PROFILE=read
    said "profile $(file) is not used: $1"
    [ "$(grep -c 'is not used' "$log")" = 1 ] || die "said more than once"
}

case_damaged_in_several_ways() {
    start
    cp "$(file)" "$work/whole"
    damaged 'weight 0: "bytes" is not a number' 's/"bytes": 4194304, "hash"/"bytes": "4194304", "hash"/'
    damaged 'weight 0: "hash" is not a hash' 's/"hash": "[0-9a-f]*"/"hash": "12"/'
    damaged 'weight 0: "allocation" is not a number' 's/"allocation": 1,/"allocation": -1,/'
    damaged 'weight 0: "span" is not a number' 's/"span": 4194304/"span": []/'
    damaged 'there is no list "weights"' 's/"weights": \[/"heights": [/'
    damaged 'touches: there is no weight of that number' 's/\[0, 1, 2, 3/[0, 1, 2, 99/'
    damaged 'there is no list "cycles"' 's/"cycles"/"circles"/'
    damaged '"link" is not a list of' 's/\[2097152, [0-9.]*\]/[2097152]/'
    damaged 'kernel 0: "slots" is not a string' 's/"slots": "[rw-]*"/"slots": 7/'
    damaged 'line ' 's/"device": {/"device": {{/'
    damaged 'it is no profile' 's/overshot profile/other profile/'
}

# What is well-formed and makes no sense is not used either.
case_senseless() {
    start
    cp "$(file)" "$work/whole"
    # shellcheck disable=SC2016 # those of sed
    for change in 's/"span": [0-9]*/"span": 1125899906842624/' 's/"offset": 0/"offset": 4194304/' 's/"span": [0-9]*/"span": 0/' \
        's/"allocation": [0-9]*/"allocation": 1/' 's/"bytes": 4194304, "hash"/"bytes": 2097152, "hash"/' \
        's/"offset": 0/"offset": 2097151/' 's/"cycles".*//; $s/.*/"cycles": [{"touches": [0, 0, 0]}]}/'; do
        sed "$change" "$work/whole" >"$(file)"
        start OVERSHOT_PROFILE=read
    done
    : >"$(file)"
    start OVERSHOT_PROFILE=read
    head -c 5000 /dev/urandom >"$(file)"
    start OVERSHOT_PROFILE=read
    mkdir "$kept/stack-folder.json"
    start OVERSHOT_PROFILE=read
}

case_read_writes_nothing() {
    start OVERSHOT_PROFILE=read
    [ ! -e "$kept" ] || die "there is a folder"
    start
    touch -d '2001-01-01' "$(file)"
    cp -p "$(file)" "$work/before"
    start OVERSHOT_PROFILE=read
    adopted
    cmp "$work/before" "$(file)"
    [ -z "$(find "$(file)" -newer "$work/before")" ] || die "its date is new"
    start OVERSHOT_PROFILE=read -- $model --seed 5
    [ "$(find "$kept" -type f | wc -l)" = 1 ] || die "$(ls "$kept")"
}

case_off_ignores_the_folder() {
    start OVERSHOT_PROFILE=off
    [ ! -e "$kept" ] || die "there is a folder"
    start
    cp "$(file)" "$work/before"
    echo damaged >"$kept/stack-x.json"
    start OVERSHOT_PROFILE=off
    refused
    unsaid profile
    rm "$kept/stack-x.json"
    cmp "$work/before" "$(file)"
}

case_folder_cannot_be_used() {
    : >"$kept"
    start
    said "no profile is read: $kept: Not a directory" "no profile is written: $kept/"
    rm "$kept"
    kept=/proc/overshot
    start
    said 'no profile is written: /proc/overshot/'
}

case_written_by_several_at_once() {
    alone $model
    for i in 1 2 3 4 5 6; do
        watched OVERSHOT_BUDGET=30M OVERSHOT_PROFILE_DIR="$kept" OVERSHOT_LOG_FILE="$work/log.$i" \
            "$stack" $model >"$work/output.$i" 2>/dev/null &
    done
    wait
    for i in 1 2 3 4 5 6; do
        cmp "$work/alone" "$work/output.$i"
        if grep 'is not used' "$work/log.$i"; then die "a half-written file was read"; fi
    done
    [ "$(find "$kept" -type f | wc -l)" = 1 ] || die "$(ls "$kept")"
    start
    adopted
}

# ---- any program, three times (its options are in OPTIONS)

case_again() {
    budget=${OVERSHOT_BUDGET:-24M} OPTIONS=${OPTIONS:---layers 8 --bytes 4M --passes 8}
    for i in 1 2 3; do
        start -- $OPTIONS
    done
    [ "$(grep -c "$at_once" "$log")" -ge "${ADOPTED:-0}" ] || die "not adopted"
}

"case_$case"
