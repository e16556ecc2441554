#!/bin/sh
# steer.sh LIBRARY DRIVER STACK TOOL CASE T_REMEMBER T_STEER : `overshot ctl` on a program that runs on the simulated
# driver. It writes what it writes alone, whatever is asked of it. Exit status 0 or 1.
# shellcheck source=simulated.sh
. "$(dirname "$0")/simulated.sh"
program=$7
chmod 700 "$work"
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || :; rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR="$work" OVERSHOT_SUMMARY=1 OVERSHOT_PROFILE_CYCLES=0
model="--layers 10 --bytes 2M --width 64 --passes 300"

# start BUDGET LIMIT [VARIABLE=VALUE...] : the program in the background. It goes on until finish.
start() {
    budget=$1 limit=$2
    shift 2
    # shellcheck disable=SC2086 # options are words
    env "$@" OVERSHOT_BUDGET="$budget" SIM_LIMIT="$limit" SIM_REPORT="$work/report" LD_PRELOAD="$library" \
        LD_LIBRARY_PATH="$driver" "$stack" $model --until "$work/enough" >"$work/output" 2>"$work/errors" & # its number is asked for
    pid=$!
}

wait_for_streaming() {
    tries=0
    until "$tool" ctl "$pid" status 2>/dev/null | grep -q streaming; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || die "it never streamed"
        kill -0 "$pid" 2>/dev/null || die "it ended before it streamed"
        sleep 0.05
    done
}

# ask WANTED REQUEST... : what is answered, a pattern of `case`.
ask() {
    wanted=$1
    shift
    answer=$("$tool" ctl "$pid" "$@" 2>&1) || :
    # shellcheck disable=SC2254 # patterns are meant
    case $answer in $wanted) ;; *) die "ctl $*: $answer; expected: $wanted" ;; esac
}

# The same bytes as without the library.
finish() {
    : >"$work/enough"
    wait "$pid" || die "it failed"
    pid=
    # shellcheck disable=SC2086
    same_as_alone $model --passes "$(sed -n 's/^passes //p' "$work/errors")"
    [ -z "$(find "$work/overshot" -type s)" ] || die "a socket is left"
}

case_status() {
    start 14M 14M
    wait_for_streaming
    ask 'device 0: streaming; budget 14 MiB, * held; weights: * MiB resident, * streamed, 0 in host memory; ring * plans, * copies, * misses' status
    finish
}

# What passes take, once they were timed.
case_status_tells_what_copies_add() {
    model="$model --ops 2000 --passes 100000"
    start 14M 14M OVERSHOT_PROFILE_CYCLES=3 SIM_CONTENTION=25
    tries=0
    until "$tool" ctl "$pid" status 2>/dev/null | grep -q 'a pass computes'; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || die "no pass was timed"
        sleep 0.05
    done
    ask 'device 0: streaming; * a pass computes * ms (spread * %), *.* % more beside copies, copies * ms, predicted * ms; * plans, *' status
    echo "$answer" | sed -n 's/.*), \([0-9.]*\) % more.*/\1/p' | awk '{ exit !($1 > 15 && $1 < 27) }' || die "$answer"
    kill "$pid"
    wait "$pid" || :
    pid=
}

case_budget_halved_and_doubled() {
    start 16M 32M
    wait_for_streaming
    ask 'done: device 0: budget 10 MiB, * held*budget 10 MiB, *' budget=10M status
    ask 'done: device 0: budget 32 MiB, * held*budget 32 MiB, *' budget=32M status
    ask 'done: device 0: budget 12 MiB, * held*' budget=12M
    held=$(echo "$answer" | sed 's/.* \([0-9]*\) held.*/\1/')
    [ "$held" -le 12 ] || die "$held MiB are held of 12"
    finish
}

# The replays of a captured graph, between which the plan changes.
case_budget_between_replays() {
    model="$model --graph"
    start 16M 32M
    wait_for_streaming
    ask 'done: device 0: budget 10 MiB, * held*budget 10 MiB, *' budget=10M status
    ask 'done: device 0: budget 32 MiB, * held*budget 32 MiB, *' budget=32M status
    ask 'done: device 0: budget 12 MiB, * held*' budget=12M
    finish
    replays=$(sed -n 's/.* \([0-9]*\) graphs$/\1/p' "$work/errors")
    [ "${replays:-0}" -gt 100 ] || die "${replays:-no} graphs turned the ring"
}

# What came of it is told of each device.
case_eight_devices() {
    export SIM_DEVICES=8
    model="--layers 80 --bytes 2M --width 64 --passes 100 --devices 8"
    start 14M 32M
    wait_for_streaming
    tries=0
    until [ "$("$tool" ctl "$pid" status | grep -c streaming)" = 8 ]; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || die "not all streamed"
        sleep 0.05
    done
    ask 'done: device 0: budget 12 MiB, *device 7: budget 12 MiB, * held' budget=12M
    finish
}

case_restore() {
    start 14M 64M
    wait_for_streaming
    ask 'done: device 0: budget * MiB, 0 MiB of weights not resident*' restore
    finish
}

case_restore_what_does_not_fit() {
    start 14M 14M SIM_MEM=18M
    wait_for_streaming
    ask 'done: device 0: * MiB are needed, and it has *' restore
    finish
}

case_replan() {
    start 14M 14M
    wait_for_streaming
    before=$("$tool" ctl "$pid" status | sed 's/.* \([0-9]*\) plans.*/\1/')
    ask 'done: device 0: plan *' replan
    after=$("$tool" ctl "$pid" status | sed 's/.* \([0-9]*\) plans.*/\1/')
    [ "$after" -gt "$before" ] || die "$before plans before and $after after"
    finish
}

case_pause_and_resume() {
    start 14M 14M
    wait_for_streaming
    ask 'done: device 0: paused*device 0: paused; *' pause status
    ask 'done: device 0: resumed*device 0: streaming; *' resume status
    finish
}

# While it is suspended, a plan leaves no profile.
case_suspend_and_resume_profile() {
    start 14M 14M OVERSHOT_PROFILE_DIR="$work/profiles"
    wait_for_streaming
    ask 'done: device 0: profile suspended*device 0: streaming, profile suspended; *' suspend-profile status
    rm -f "$work"/profiles/* # what was written until then, the last one perhaps just now
    ask 'done: device 0: plan *' replan
    [ -z "$(find "$work/profiles" -type f)" ] || die "a profile was written"
    ask 'done: device 0: profile resumed*device 0: streaming; *' resume-profile status
    ask 'done: device 0: plan *' replan
    [ "$(find "$work/profiles" -type f | wc -l)" = 1 ] || die "no profile was written"
    finish
}

# The table has a row for each streamed weight, and what all of them take in a pass is what the rows take.
case_timing() {
    start 14M 14M OVERSHOT_TIMING=4
    wait_for_streaming
    tries=0
    until "$tool" ctl "$pid" timing >"$work/table" && grep -q 'the last 4 of' "$work/table"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || die "no table: $(cat "$work/table")"
        sleep 0.05
    done
    ask 'device 0: plan 1, the last 4 of * passes (0 left out), ms a pass:* weight *allocation * all * pass *' timing
    awk '$1 == "weight" { on = 1; next }
        $1 == "all" { all = $4; on = 0 }
        on { rows++; sum += $6 }
        END { d = all - sum; exit !(rows == 8 && all > 0.3 && d * d < 0.0001) }' "$work/table" ||
        die "$(cat "$work/table")"
    finish
}

case_timing_is_not_taken() {
    start 14M 14M
    wait_for_streaming
    status=0
    "$tool" ctl "$pid" timing >"$work/answer" 2>&1 || status=$?
    if [ $status != 1 ] || ! grep -q 'error: nothing is timed: .*OVERSHOT_TIMING' "$work/answer"; then
        die "status $status: $(cat "$work/answer")"
    fi
    finish
}

# Thousands of bytes of answer.
case_long_answer() {
    model="--layers 120 --bytes 2M --width 64 --passes 60"
    start 40M 40M OVERSHOT_TIMING=100
    wait_for_streaming
    tries=0
    until "$tool" ctl "$pid" timing >"$work/table" && grep -q '^ *pass ' "$work/table"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || die "no table"
        sleep 0.05
    done
    [ "$(wc -c <"$work/table")" -gt 8000 ] || die "$(wc -c <"$work/table") bytes"
    finish
}

case_not_reachable() {
    start 14M 14M OVERSHOT_CONTROL=0
    sleep 1
    status=0
    "$tool" ctl "$pid" status >"$work/answer" 2>&1 || status=$?
    if [ $status != 1 ] || ! grep -q 'cannot be reached' "$work/answer"; then
        die "status $status: $(cat "$work/answer")"
    fi
    kill "$pid"
    wait "$pid" || :
    pid=
}

# A folder that others can enter is not used.
case_folder_of_others() {
    mkdir "$work/overshot"
    chmod 755 "$work/overshot"
    start 14M 14M
    sleep 1
    [ -z "$(find "$work/overshot" -type s)" ] || die "a socket in a folder that others can enter"
    kill "$pid"
    wait "$pid" || :
    pid=
}

# told [VARIABLE=VALUE...] : the program that makes a pass with each line of its input, in the background, once it
# streams.
told() {
    rm -f "$work/lines" "$work/log"
    mkfifo "$work/lines"
    env OVERSHOT_BUDGET=14M SIM_LIMIT=32M OVERSHOT_LOG_FILE="$work/log" OVERSHOT_LOG=info SIM_REPORT="$work/report" "$@" \
        LD_PRELOAD="$library" LD_LIBRARY_PATH="$driver" "$program" as_told <"$work/lines" >"$work/output" \
        2>"$work/errors" & # its number is asked for
    pid=$!
    exec 9>"$work/lines"
    passed=0
    wait_for_line ready 1
}

# passes COUNT [LINE] : so many.
passes() {
    passed=$((passed + $1))
    # shellcheck disable=SC2034 # only counts
    for number in $(seq "$1"); do
        echo "${2:-go}" >&9
    done
    wait_for_line passed $passed
}

# ask_with_passes WANTED REQUEST... : it is done in the course of passes, the fewest that do.
ask_with_passes() {
    wanted=$1
    shift
    : >"$work/answer"
    "$tool" ctl "$pid" "$@" >"$work/answer" &
    asking=$!
    sleep 0.3 # most often enough for it to have been asked
    until [ -s "$work/answer" ]; do
        passes 1
    done
    wait $asking
    answer=$(cat "$work/answer")
    # shellcheck disable=SC2254 # patterns are meant
    case $answer in $wanted) ;; *) die "ctl $*: $answer; expected: $wanted" ;; esac
}

# wait_for_line LINE TIMES : until the program has said it so often.
wait_for_line() {
    tries=0
    until [ "$(grep -c "$1" "$work/output")" -ge "$2" ]; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || die "it never said $1"
        sleep 0.05
    done
}

told_to_end() {
    exec 9>&-
    wait "$pid" || die "it failed"
    pid=
}

# Each that was accepted is done, in the order in which they came, when the program waits at last.
case_requests_that_wait() {
    told
    ask 'accepted: *' budget=10M
    ask 'accepted: *' pause
    ask 'device 0: streaming; budget 14 MiB, *' status
    echo go >&9
    tries=0
    until "$tool" ctl "$pid" status | grep -q paused; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || die "it was never paused"
        sleep 0.05
    done
    ask 'device 0: paused; budget 10 MiB, *' status
    told_to_end
}

# Nor is the plan changed when memory is asked for that does not fit.
case_paused_program_grows() {
    told
    ask_with_passes 'done: device 0: paused' pause
    before=$("$tool" ctl "$pid" status | sed 's/.* \([0-9]*\) plans.*/\1/')
    passes 3 grow
    after=$("$tool" ctl "$pid" status | sed 's/.* \([0-9]*\) plans.*/\1/')
    [ "$before" = "$after" ] || die "$before plans before and $after after"
    told_to_end
}

times_timed() {
    grep -c 'passes were timed' "$work/log" || :
}

calls_of() { # FUNCTION : how often the driver was called by the program that has ended
    grep -o "\"$1\": *[0-9]*" "$work/report" | grep -o '[0-9]*$' || echo 0
}

# timing_is_suspended SUSPEND RESUME : in the first pass that is timed, the second, one that is hushed. Then none is,
# and when it goes on it does from the beginning.
timing_is_suspended() {
    for count in 0 1 3; do
        told OVERSHOT_PROFILE_CYCLES=3 OVERSHOT_LOG=debug
        passes $count
        ask_with_passes 'done: device 0: *' "$1"
        [ "$(times_timed)" = 0 ] || die "they were timed before"
        passes 20
        [ "$(times_timed)" = 0 ] || die "passes were timed"
        ask_with_passes 'done: device 0: *resumed' "$2"
        passes 12
        [ "$(times_timed)" = 1 ] || die "passes were timed $(times_timed) times"
        grep -q ' 5 passes were timed, intervals not known: 0 ' "$work/log" || die "not all was timed"
        ask 'device 0: streaming; * a pass computes *' status
        told_to_end
    done
}

case_profile_is_suspended_while_passes_are_timed() {
    timing_is_suspended suspend-profile resume-profile
}

case_pause_while_passes_are_timed() {
    timing_is_suspended pause resume
}

# A plan that is asked for does not begin it again: it makes the events for that.
case_plan_of_a_paused_program() {
    told OVERSHOT_PROFILE_CYCLES=3
    ask_with_passes 'done: device 0: paused' pause
    for budget in 12M 10M 14M; do
        ask_with_passes 'done: device 0: budget * MiB, *' budget=$budget
    done
    passes 10
    told_to_end
    events=$(calls_of cuEventCreate)
    [ "$events" -lt 3000 ] || die "$events events were made"
}

# Nor is anything else asked for its time.
case_suspended_profile_costs_nothing() {
    for count in 20 120; do
        told OVERSHOT_PROFILE_CYCLES=3 OVERSHOT_SUMMARY=0
        ask 'accepted: *' suspend-profile # and done in the first pass
        passes $count
        told_to_end
        calls=$(calls_of cuEventElapsedTime)
        [ "${least:=$calls}" = "$calls" ] || die "$least questions for times, and $calls with 100 passes more"
    done
}

# Passes that are timed anew, since they take longer, and are not when it is suspended.
case_profile_is_suspended_while_passes_are_timed_anew() {
    told OVERSHOT_PROFILE_CYCLES=3 OVERSHOT_LOG=debug
    passes 20
    [ "$(times_timed)" = 1 ] || die "passes were timed $(times_timed) times"
    until grep -q 'timed anew' "$work/log"; do
        passes 1 slow
        [ $passed -lt 100 ] || die "it was not noticed"
    done
    ask_with_passes 'done: device 0: profile suspended' suspend-profile
    passes 20 slow
    [ "$(times_timed)" = 1 ] || die "passes were timed"
    ask_with_passes 'done: device 0: profile resumed' resume-profile
    passes 8 slow
    [ "$(times_timed)" = 2 ] || die "passes were timed $(times_timed) times"
    told_to_end
}

# What is noticed meanwhile is put off.
case_passes_change_while_profile_is_suspended() {
    told OVERSHOT_PROFILE_CYCLES=3 OVERSHOT_LOG=debug
    passes 20
    ask_with_passes 'done: device 0: profile suspended' suspend-profile
    passes 60 slow
    ! grep 'timed anew' "$work/log" || die "they are not"
    ask_with_passes 'done: device 0: profile resumed' resume-profile
    passes 10 slow
    [ "$(times_timed)" = 2 ] || die "passes were timed $(times_timed) times"
    told_to_end
}

# Wherever it happens to be in a pass.
again_and_again() {
    start 14M 14M OVERSHOT_PROFILE_CYCLES=3
    wait_for_streaming
    # shellcheck disable=SC2034 # only counts
    for number in $(seq 12); do
        ask 'done: device 0: profile suspended' suspend-profile
        ask 'done: device 0: profile resumed' resume-profile
        ask 'done: device 0: paused' pause
        ask 'done: device 0: resumed' resume
    done
    finish
}

case_suspended_again_and_again() {
    again_and_again
}

case_suspended_again_and_again_with_graphs() {
    model="$model --graph"
    again_and_again
}

case_what_killed_programs_leave() {
    start 14M 14M
    wait_for_streaming
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || :
    pid=
    [ -n "$(find "$work/overshot" -type s)" ] || die "no socket is left"
    start 14M 14M
    wait_for_streaming
    finish
}

case_wrong_requests() {
    for request in budget budget=lots budget=1M status=1 timing=1 suspend-profile=1 nothing pause=1; do
        status=0
        "$tool" ctl $$ "$request" >"$work/answer" 2>&1 || status=$?
        if [ $status != 125 ] || ! grep -q "\"$request\" is no request" "$work/answer"; then
            die "$request: status $status"
        fi
    done
    status=0
    "$tool" ctl $$ >"$work/answer" 2>&1 || status=$?
    [ $status = 125 ] || die "no request: status $status"
    "$tool" ctl --help | grep -q 'budget=SIZE' || die "no help"
}

"case_$case"
