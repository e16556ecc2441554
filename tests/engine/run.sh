#!/bin/sh
# run.sh LOG SHIM DRIVER COMMAND...: runs a test program on the simulated driver in folder DRIVER with SHIM preloaded
# into it alone and with a fresh log. Fails when the driver reports anything (but what ENGINE_ALLOW names), be it a
# race, an illegal access, or more device memory than the budget.
set -u
OVERSHOT_LOG_FILE=$1 shim=$2 driver=$3
shift 3
mkdir -p "$(dirname "$OVERSHOT_LOG_FILE")"
rm -f "$OVERSHOT_LOG_FILE" "$OVERSHOT_LOG_FILE.err"
export OVERSHOT_LOG_FILE OVERSHOT_LOG="${OVERSHOT_LOG:-info}" OVERSHOT_SUMMARY=1
# The driver counts with us: device memory above the budget ends the program.
case ${SIM_LIMIT:-budget} in
budget) SIM_LIMIT=${OVERSHOT_BUDGET:-0} ;;
none) SIM_LIMIT=0 ;;
esac
export SIM_LIMIT
status=0
env LD_PRELOAD="$shim" LD_LIBRARY_PATH="$driver" "$@" 2>"$OVERSHOT_LOG_FILE.err" || status=$?
cat "$OVERSHOT_LOG_FILE.err" >&2
[ ! -e "$OVERSHOT_LOG_FILE" ] || [ "$status" -eq 0 ] || tail -n 20 "$OVERSHOT_LOG_FILE" >&2
[ "$status" -eq 0 ] || exit "$status"
! grep '^sim: ' "$OVERSHOT_LOG_FILE.err" | grep -qv "^sim: ${ENGINE_ALLOW:-nothing}"
