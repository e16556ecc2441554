#!/usr/bin/env bash
# share.sh together COUNT SHIM DRIVER PROGRAM TOOL: COUNT processes that run the same weights hold one host copy of what
#   they stream: all compute what they should, the copy and what each holds besides are at most 1.05 of the weights that
#   are streamed ("ratio R" is printed), and the last one to end leaves nothing.
# share.sh over SHIM DRIVER PROGRAM TOOL: a process that gives its context back when the driver is gone already leaves
#   nothing.
# share.sh killed ROUNDS SEED SHIM DRIVER PROGRAM TOOL: 8 processes, one of which is killed at a random moment: the
#   others compute what they should, and what the killed left is cleared away afterwards.
set -euo pipefail
what=$1
shift
work=$(mktemp -d)
name=test-$$
folder=/dev/shm/overshot-$(id -u)/$name
trap 'rm -rf "$work" "$folder"' EXIT
export OVERSHOT_SHARE=$name OVERSHOT_LOG=info OVERSHOT_SUMMARY=1

start() { # NUMBER CASE : in the background, `pid` is its number
    OVERSHOT_LOG_FILE=$work/log.$1 LD_PRELOAD=$shim LD_LIBRARY_PATH=$driver "$program" "$2" \
        >"$work/out.$1" 2>"$work/err.$1" <"${3:-/dev/null}" &
    pid=$!
}

complain() {
    echo "$*"
    tail -n 5 "$work"/err.* "$work"/log.* 2>/dev/null || true
    exit 1
}

# Bytes of the space's files, whole or not.
held() { find "$folder" -type f ! -name lock -printf '%s\n' 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }'; }

# A number from a line of a process's log.
logged() { # NUMBER EXPRESSION
    sed -n "s/.*$2.*/\1/p" "$work/log.$1" | tail -n 1
}

together() { # COUNT
    local count=$1 i pids=() bytes streamed private sum=0
    shim=$2 driver=$3 program=$4
    mkfifo "$work/go"
    for ((i = 0; i < count; i++)); do
        start "$i" shares_until_told "$work/go"
        pids+=("$pid")
    done
    exec 9>"$work/go"
    for ((i = 0; i < count; i++)); do
        until grep -q ready "$work/out.$i"; do
            kill -0 "${pids[i]}" 2>/dev/null || complain "process $i ended before it streamed"
            sleep 0.05
        done
    done
    bytes=$(held)
    for ((i = 0; i < count; i++)); do
        streamed=$(logged "$i" 'weights resident, \([0-9]*\) streamed')
        [ "$(logged "$i" ': \([0-9]*\) MiB of host copies are shared')" = "$streamed" ] || complain "process $i does not share all"
        private=$(logged "$i" 'are shared as .*, \([0-9]*\) MiB are not')
        sum=$((sum + private))
    done
    exec 9>&-
    for ((i = 0; i < count; i++)); do
        wait "${pids[i]}" || complain "process $i ended with $?"
    done
    [ ! -e "$folder" ] || complain "the last one left: $(ls -l "$folder")"
    awk -v bytes="$bytes" -v private="$sum" -v streamed="$streamed" 'BEGIN {
        ratio = (bytes + private * 1048576) / (streamed * 1048576)
        printf "ratio %.4f\n", ratio
        exit !(ratio <= 1.05)
    }' || complain 'more than one copy'
}

over() {
    shim=$1 driver=$2 program=$3
    start 0 closes_when_all_is_over
    wait "$pid" || complain "ended with $?"
    [ "$(logged 0 ': \([0-9]*\) MiB of host copies are shared')" -gt 0 ] || complain 'nothing was shared'
    [ ! -e "$folder" ] || complain "left: $(ls -l "$folder")"
}

killed() { # ROUNDS SEED
    local rounds=$1 round i victim pids status
    RANDOM=$2
    shim=$3 driver=$4 program=$5 tool=$6
    for ((round = 0; round < rounds; round++)); do
        pids=() victim=$((RANDOM % 8))
        for ((i = 0; i < 8; i++)); do
            start "$i" streams
            pids+=("$pid")
        done
        sleep "$(printf '%d.%03d' $((RANDOM % 2)) $((RANDOM % 1000)))"
        kill -KILL "${pids[victim]}" 2>/dev/null || true # it may have come to its end
        for ((i = 0; i < 8; i++)); do
            status=0
            wait "${pids[i]}" || status=$?
            [ "$status" = 0 ] || [ "$i" = "$victim" ] || complain "round $round, process $victim killed: process $i ended with $status"
        done
    done 2>/dev/null
    # Nobody is left; a space may be, if the killed one was the last in it.
    [ ! -e "$folder" ] || "$tool" ctl cleanup "$name"
    [ ! -e "$folder" ] || complain "left: $(ls -l "$folder")"
}

"$what" "$@"
