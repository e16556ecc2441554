#!/bin/sh
# Lays the answers of a real driver beside those of the simulated one.
#
#   driver_compare.sh BUILD            on a machine with both: runs both and shows where they differ, also in rules that are
#                                      taken from the documentation so far
#   driver_compare.sh BUILD REAL.txt   compares with answers that were printed on another machine:
#                                      there, `driver_compare --images ... --fixtures ... --lost > REAL.txt` is enough
#
# BUILD is a build folder of this tree. Exit status: 0 equal, 1 different, 2 wrong usage, 77 no real driver here.
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -x "$1/tests/sim/driver_compare" ]; then
    echo "usage: $0 BUILD [REAL.txt]   (BUILD has tests/sim/driver_compare)" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

answers() { # library path
    LD_LIBRARY_PATH=$1 SIM_KERNELS=$build/tests/kernels/libsimkernels.so "$build/tests/sim/driver_compare" \
        --images "$root/tests/kernels/images" --fixtures "$root/tests/sim/fixtures" --lost $all 2>/dev/null
}

all=--all
if [ $# -eq 2 ]; then
    all=
    cp "$2" "$folder/real"
else
    answers "${LD_LIBRARY_PATH:-}" >"$folder/real" || exit $?
fi
answers "$build/tests/sim" >"$folder/simulated"
known=$root/tests/gpu/driver_compare.known
grep -v '^#' "$known" >"$folder/known" || :
diff -U0 "$folder/real" "$folder/simulated" | grep '^[-+][^-+]' | sort >"$folder/differences" || :
sort "$folder/known" | comm -23 "$folder/differences" - >"$folder/unknown"
echo "$(wc -l <"$folder/real") real answers, $(wc -l <"$folder/simulated") simulated, $(wc -l <"$folder/unknown") lines differ" \
    "beyond the $(grep -c . "$folder/known" || :) known ones"
cat "$folder/unknown"
[ ! -s "$folder/unknown" ]
