#!/bin/sh
# test_demo.sh CASE : that demo.sh tells success from failure. BUILD says where the programs are.
set -eu
demo=$(cd "$(dirname "$0")/../.." && pwd)/demo.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    cat "$work/output" >&2
    echo "$*" >&2
    exit 1
}

case $1 in
same_text)
    "$demo" --tokens 60 >"$work/output" 2>&1 || fail "status $?"
    grep -q '^same text$' "$work/output" || fail 'it does not say that the text is the same'
    # Two columns, the same; and memory that is less.
    awk '/^md5 of the text/ { same = NF == 6 && $5 == $6 }
         /^peak device memory/ { less = $6 > 0 && $6 < $4 / 2 }
         END { exit !(same && less) }' "$work/output" || fail 'the table does not show it'
    ;;
needs_streaming)
    # With a budget that fits everything there is nothing to demonstrate.
    status=0
    DEMO_BUDGET=1G "$demo" --tokens 20 >"$work/output" 2>&1 || status=$?
    [ "$status" = 1 ] || fail "status $status instead of 1"
    grep -q 'nothing was streamed' "$work/output" || fail 'it does not say why it failed'
    ;;
*)
    echo "no such case: $1" >&2
    exit 1
    ;;
esac
