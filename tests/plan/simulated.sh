# simulated.sh - how the scripts beside it begin: SCRIPT LIBRARY DRIVER STACK TOOL CASE [PROGRAM]. A folder of its own,
# $work, and programs on the simulated driver, with the library and without it. A case is a shell function case_CASE,
# which the script calls in its last line; it ends with exit status 0 or 1.
# shellcheck shell=sh disable=SC2034 # for those who read it
set -eu
library=$1 driver=$2 stack=$3 tool=$4 case=$5 program=${6:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# die MESSAGE... : the case has failed; tells what was logged last, too.
die() {
    echo "$*" >&2
    for told in "$work/log" "$work/errors"; do
        [ ! -s "$told" ] || grep -v 'MiB at' "$told" | tail -n 40 >&2
    done
    exit 1
}

# watched [VARIABLE=VALUE...] COMMAND... : with the library.
watched() {
    env LD_PRELOAD="$library" LD_LIBRARY_PATH="$driver" "$@"
}

# alone OPTION... : what `stack` writes without it, in $work/alone.
alone() {
    LD_LIBRARY_PATH="$driver" "$stack" "$@" >"$work/alone"
}

# same_as_alone OPTION... : $work/output is that.
same_as_alone() {
    alone "$@"
    cmp -s "$work/alone" "$work/output" || die "other output than alone: $*"
}
