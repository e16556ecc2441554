#!/bin/sh
# overshot-wrap.sh PROGRAM [ARG...]
#
# Runs PROGRAM with libovershot.so in front of the CUDA driver, configured by OVERSHOT_* variables only: for launch
# scripts and job files. `overshot run` is the same with options that are checked. Needs nothing but a POSIX shell.
#
# The library is the one that OVERSHOT_LIBRARY names, else the one beside this script, in ../lib* or in ../shim.
# Exit status: the program's; 125 for an error of this script, 126 and 127 when PROGRAM cannot be run or found.
set -eu

fail() {
    status=$1
    shift
    printf 'overshot-wrap: %s\n' "$*" >&2
    exit "$status"
}

find_library() {
    if [ -n "${OVERSHOT_LIBRARY:-}" ]; then
        [ -f "$OVERSHOT_LIBRARY" ] || fail 125 "OVERSHOT_LIBRARY=$OVERSHOT_LIBRARY: no such file"
        library=$OVERSHOT_LIBRARY
        return
    fi
    script=$(readlink -f -- "$0") || fail 125 "cannot tell where $0 is; set OVERSHOT_LIBRARY"
    folder=$(dirname -- "$script")
    for library in "$folder/libovershot.so" "$folder/../shim/libovershot.so" "$folder/../lib/libovershot.so" \
        "$folder"/../lib/*-linux-gnu/libovershot.so "$folder/../lib64/libovershot.so" \
        "$folder/../build/default/shim/libovershot.so"; do
        [ ! -f "$library" ] || return 0
    done
    fail 125 "libovershot.so was not found from $folder; build the project, or set OVERSHOT_LIBRARY"
}

[ $# -gt 0 ] || fail 125 "usage: overshot-wrap.sh PROGRAM [ARG...]"
find_library
library=$(readlink -f -- "$library")
case $library in
*[\ :]*) fail 125 "$library cannot be preloaded: LD_PRELOAD takes no path with a space or a colon" ;;
esac
path=$(command -v -- "$1") || {
    [ ! -e "$1" ] || fail 126 "$1: not executable"
    fail 127 "$1: not found"
}
[ -x "$path" ] || fail 126 "$1: not executable"

case ":${LD_PRELOAD:-}:" in
*[:\ ]"$library"[:\ ]*) ;;
*) LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$library ;;
esac
export LD_PRELOAD
exec "$@"
