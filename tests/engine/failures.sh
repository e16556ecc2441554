#!/usr/bin/env bash
# failures.sh FUNCTION SHIM DRIVER PROGRAM: one call of FUNCTION fails, in each run another one, about TRIES (default
# 12) of them spread over all that the program makes; in every second run the next two calls do, too, since some are
# tried again; in the last run all fail. The program must end with right bytes or
# an error code (status 0, 2, 3) within a time limit. The budget is not looked at: memory whose unmapping fails is lost,
# and a shim that gives up passes through.
set -u
function=$1 shim=$2 driver=$3 program=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$driver OVERSHOT_LOG_FILE=$work/log OVERSHOT_LOG=info

run() { # FAILURES: status is what the program ended with
    status=0
    {
        SIM_FAIL=$1 SIM_REPORT=$work/report LD_PRELOAD=$shim timeout 60 "$program" life >"$work/out" 2>&1 || status=$?
    } 2>/dev/null
}

run 'none:1:1'
[ "$status" -eq 0 ] || { echo "without a failure the program ends with $status" && cat "$work/out" && exit 1; }
grep -q 'streamed' "$work/log" || { echo 'the program streams nothing: this tests nothing' && exit 1; }
calls=$(sed -n "s/.*\"$function\": \([0-9]*\).*/\1/p" "$work/report")
[ "${calls:-0}" -gt 0 ] || { echo "$function is never called" && exit 1; }

failed=0 tried=0
try() { # WHICH ERROR
    rm -f "$work/log"
    local failing=$function:$1:$2
    if [ "$1" != '*' ] && [ $((tried % 2)) = 1 ]; then
        failing+=,$function:$(($1 + 1)):$2,$function:$(($1 + 2)):$2
    fi
    run "$failing"
    tried=$((tried + 1))
    case $status in
    0 | 2 | 3) ;;
    *)
        failed=$((failed + 1))
        echo "SIM_FAIL=$failing of $calls calls: status $status"
        grep -v '^ ' "$work/out" | head -n 4
        tail -n 3 "$work/log"
        ;;
    esac
}

# 2 out of memory, 999 unknown.
step=$(((calls + ${TRIES:-12} - 1) / ${TRIES:-12}))
for ((n = 1; n <= calls; n += step)); do
    try "$n" $((n % 2 ? 2 : 999))
done
try '*' 2
echo "$function: $tried runs, $failed wrong"
[ "$failed" -eq 0 ]
