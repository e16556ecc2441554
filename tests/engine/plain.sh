#!/bin/sh
# plain.sh DRIVER COMMAND...: runs a test program on the simulated driver in folder DRIVER, without overshot.
set -u
driver=$1
shift
[ "${SIM_LIMIT:-}" != none ] || unset SIM_LIMIT
exec env LD_LIBRARY_PATH="$driver" "$@"
