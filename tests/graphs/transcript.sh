#!/usr/bin/env bash
# transcript.sh LOG SHIM DRIVER PROGRAM CASE: a test program prints the same with SHIM preloaded and without: result codes,
# counts, handles' order, bytes read. Both runs must end with status 0 and the driver must report nothing, be it a race, an
# illegal access, or more device memory than the budget (SIM_LIMIT=none: as much as there is).
set -euo pipefail
OVERSHOT_LOG_FILE=$1 shim=$2 driver=$3
shift 3
mkdir -p "$(dirname "$OVERSHOT_LOG_FILE")"
rm -f "$OVERSHOT_LOG_FILE" "$OVERSHOT_LOG_FILE".*
out=$OVERSHOT_LOG_FILE

run() { # NAME ENVIRONMENT... -- COMMAND...
    local name=$1 status=0
    shift
    env LD_LIBRARY_PATH="$driver" "$@" >"$out.$name" 2>"$out.$name.err" || status=$?
    if [ "$status" -ne 0 ] || grep -a '^sim: ' "$out.$name.err"; then
        echo "$name: status $status"
        tail -n 20 "$out.$name" "$out.$name.err"
        [ ! -e "$OVERSHOT_LOG_FILE" ] || tail -n 20 "$OVERSHOT_LOG_FILE"
        exit 1
    fi
}

run alone SIM_LIMIT= "$@"
limit=$OVERSHOT_BUDGET
[ "${SIM_LIMIT:-budget}" != none ] || limit=0
run shim SIM_LIMIT="$limit" ${FAIL_WITH_SHIM:+"SIM_FAIL=$FAIL_WITH_SHIM"} OVERSHOT_LOG_FILE="$OVERSHOT_LOG_FILE" OVERSHOT_LOG=info OVERSHOT_SUMMARY=1 \
    LD_PRELOAD="$shim" "$@"
diff "$out.alone" "$out.shim" || { echo 'other answers with the shim' && exit 1; }
[ -s "$out.alone" ] || { echo 'the program told nothing' && exit 1; }
