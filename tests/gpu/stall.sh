#!/usr/bin/env bash
# tests/gpu/stall.sh FOLDER: OVERSHOT_STALL and OVERSHOT_TIMING on a real GPU, under PyTorch.
#
#   FOLDER    with bin/libovershot.so (or a build folder)
#   OUT       folder for the logs (default: a new one in /tmp)
#
# A launch that is refused raises an exception and can be made again, with the md5 of a run without overshot; `warn` says
# the same and refuses nothing; the table of the passes is shown. Exit status: 0 so it is,
# 1 it is not, 77 no GPU.
set -uo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "stall.sh: no GPU here" >&2; exit 77; }
lib=$1/shim/libovershot.so
[ -f "$lib" ] || lib=$1/bin/libovershot.so
out=${OUT:-$(mktemp -d /tmp/overshot-stall.XXXXXX)}
export PYTHONUNBUFFERED=1
failed=0
check() { # CONDITION WHAT
    if [ "$1" = 1 ]; then echo "  ok      $2"; else echo "  FAILED  $2"; failed=1; fi
}
run() { # NAME VARIABLE=VALUE...
    local name=$1
    shift
    env "$@" timeout 120 python3 "$here/programs/stall_pass.py" >"$out/$name.log" 2>"$out/$name.err" ||
        { echo "  FAILED  $name: $(tail -n 1 "$out/$name.err")"; failed=1; }
}
with=(LD_PRELOAD="$lib" OVERSHOT_BUDGET=1536M OVERSHOT_SUMMARY=1) # of 24 times 128 MiB
sum() { grep -o 'md5 [0-9a-f]*' "$out/$1.log"; }
count() { sed -n "s/.*[ ,]\([0-9]*\) $2.*/\1/p" "$out/$1.log"; }

run plain
run off "${with[@]}"
run warn "${with[@]}" OVERSHOT_STALL=warn
run error "${with[@]}" OVERSHOT_STALL=error
run timing "${with[@]}" OVERSHOT_TIMING=10
for name in off warn error timing; do
    check "$([ -n "$(sum plain)" ] && [ "$(sum $name)" = "$(sum plain)" ] && echo 1)" "$name: md5 as without overshot"
    check "$(grep -q ' [1-9][0-9]* streamed' "$out/$name.err" && echo 1)" "$name: weights were streamed"
done
check "$([ "$(count error 'refused in order')" = 0 ] && echo 1)" 'nothing is refused in order'
check "$([ "$(count error 'out of it')" -gt 0 ] && echo 1)" "refused out of order: $(count error 'out of it')"
check "$([ "$(count warn 'out of it')" = 0 ] && echo 1)" 'warn refuses nothing'
check "$(grep -q 'a copy was waited for: kernel ' "$out/warn.err" && echo 1)" 'warn names a kernel'
check "$(grep -q 'all .*' "$out/timing.err" && echo 1)" 'a table:'
grep '^overshot: ' "$out/timing.err" | sed 's/^/          /'
[ $failed = 0 ] && echo "stall: all passed" || echo "stall: FAILED"
exit $failed
