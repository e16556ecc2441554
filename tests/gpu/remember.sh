#!/usr/bin/env bash
# tests/gpu/remember.sh FOLDER: a program that starts three times with one folder of profiles (OVERSHOT_PROFILE_DIR).
#
#   FOLDER    with bin/libovershot.so (or a build folder)
#   CLIENTS   folder with llama_pass.py
#   BUDGET    of device memory (default 4G)
#   OUT       folder for the logs (default: a new one in /tmp)
#
# All starts have to print the md5s of a run without overshot. The second and third have to find their weights in the
# profile, and their first pass may take 1.1 of a steady one, besides what the first pass takes more than a later one
# without overshot (libraries that are loaded then). Exit status: 0 so it is, 1 it is not, 77 no GPU.
set -uo pipefail
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "remember.sh: no GPU here" >&2; exit 77; }
lib=$1/shim/libovershot.so
[ -f "$lib" ] || lib=$1/bin/libovershot.so
here=$(dirname "$(readlink -f "$0")")
out=${OUT:-$(mktemp -d /tmp/overshot-remember.XXXXXX)}
client=${CLIENTS:?a folder with llama_pass.py}/llama_pass.py
export N=${N:-16} LAYERS=${LAYERS:-16} PYTHONUNBUFFERED=1
rm -rf "$out/profiles" && mkdir -p "$out"
sums() { grep -o 'md5 [0-9a-f]*' "$1" | tr '\n' ' '; }
failed=0
check() { # CONDITION WHAT
    if [ "$1" = 1 ]; then echo "  ok      $2"; else echo "  FAILED  $2"; failed=1; fi
}
# The 32-token passes: four of the program's own, one before those that it times, and those.
first() { head -n 1 "$1"; }
steady() { sed -n "6,$((N + 5))p" "$1" | sort -n | awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)] }'; }

timeout 300 python3 "$here/pass_times.py" "$out/ms.plain" "$client" >"$out/out.plain" 2>&1
more=$(awk -v f="$(first "$out/ms.plain")" -v s="$(steady "$out/ms.plain")" 'BEGIN { print f - s }')
for i in 1 2 3; do
    rm -f "$out/log.$i"
    LD_PRELOAD=$lib OVERSHOT_PROFILE_DIR=$out/profiles OVERSHOT_BUDGET=${BUDGET:-4G} OVERSHOT_SUMMARY=1 \
        OVERSHOT_LOG=debug OVERSHOT_LOG_FILE=$out/log.$i \
        timeout 400 python3 "$here/pass_times.py" "$out/ms.$i" "$client" >"$out/out.$i" 2>&1
    check "$([ -n "$(sums "$out/out.plain")" ] && [ "$(sums "$out/out.$i")" = "$(sums "$out/out.plain")" ] && echo 1)" \
        "start $i: md5s as without overshot"
    grep -h 'weights of the profile\|is not used\|was not used\|is of other weights\|, plan [0-9]*:\|given up' "$out/log.$i" |
        sed 's/^/          /'
    f=$(first "$out/ms.$i") s=$(steady "$out/ms.$i")
    echo "          first pass $f ms, steady $s ms; without overshot the first takes $more ms more than a later one"
    echo "          first five: $(head -n 5 "$out/ms.$i" | tr '\n' ' ')ms"
    [ $i = 1 ] && continue
    check "$(grep -q 'its plan is made at once' "$out/log.$i" && echo 1)" "start $i: its weights are known"
    check "$(awk -v f="$f" -v s="$s" -v m="$more" 'BEGIN { print (f > 0 && f <= m + 1.1 * s) ? 1 : 0 }')" \
        "start $i: the first pass is a steady one: $(awk -v f="$f" -v s="$s" -v m="$more" 'BEGIN { printf "%.2f", (f - m) / s }')"
    check "$(grep -c 'ov_watch_end held\|leave_path held' "$out/log.$i" | awk '{ print ($1 <= 8) ? 1 : 0 }')" \
        "start $i: $(grep -c 'ov_watch_end held\|leave_path held' "$out/log.$i") noticeable stops for kernels"
done
check "$([ "$(find "$out/profiles" -name '*.json' | wc -l)" = 1 ] && echo 1)" "there is one profile"
[ $failed = 0 ] && echo "remember: all passed" || echo "remember: FAILED"
exit $failed
