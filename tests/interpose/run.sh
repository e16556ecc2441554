#!/bin/sh
# run.sh RECORD PRELOAD LIBRARY_PATH COMMAND...: runs a test program with a fresh record, with PRELOAD preloaded into it
# alone. @jemalloc@ in PRELOAD stands for the system's jemalloc; without one the test is skipped.
set -eu
RECORD_FILE=$1 preload=$2 path=$3
shift 3
case $preload in
*@jemalloc@*)
    jemalloc=
    for folder in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib; do
        if [ -e "$folder/libjemalloc.so.2" ]; then
            jemalloc=$folder/libjemalloc.so.2
        fi
    done
    if [ -z "$jemalloc" ]; then
        echo "skipped: no libjemalloc.so.2 here"
        exit 77
    fi
    preload=${preload%%@jemalloc@*}$jemalloc${preload#*@jemalloc@}
    ;;
esac
mkdir -p "$(dirname "$RECORD_FILE")"
rm -f "$RECORD_FILE"
export RECORD_FILE
exec env LD_PRELOAD="$preload" LD_LIBRARY_PATH="$path" "$@"
