#!/usr/bin/env bash
# tests/gpu/share.sh FOLDER: two processes with the same weights on one GPU, which hold one host copy of what they
# stream (OVERSHOT_SHARE).
#
#   FOLDER    with bin/libovershot.so (or a build folder)
#   CLIENTS   folder with llama_pass.py
#   OUT       folder for the logs (default: a new one in /tmp)
#
# Both have to print the md5s of a run without overshot, and the copies of both together, shared or not, may be 1.05 of
# what one of them streams. Exit status: 0 so it is, 1 it is not, 77 no GPU.
set -uo pipefail
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "share.sh: no GPU here" >&2; exit 77; }
lib=$1/shim/libovershot.so
[ -f "$lib" ] || lib=$1/bin/libovershot.so
out=${OUT:-$(mktemp -d /tmp/overshot-share.XXXXXX)}
client=${CLIENTS:?a folder with llama_pass.py}/llama_pass.py
name=gpu-test-$$
folder=/dev/shm/overshot-$(id -u)/$name
export N=60 LAYERS=${LAYERS:-8} PYTHONUNBUFFERED=1
sums() { grep -o 'md5 [0-9a-f]*' "$1" | tr '\n' ' '; }
failed=0
check() { # CONDITION WHAT
    if [ "$1" = 1 ]; then echo "  ok      $2"; else echo "  FAILED  $2"; failed=1; fi
}

timeout 90 python3 "$client" >"$out/share.plain" 2>&1
for i in 1 2; do
    LD_PRELOAD=$lib OVERSHOT_SHARE=$name OVERSHOT_BUDGET=8G OVERSHOT_TIERS=streamed OVERSHOT_SUMMARY=1 OVERSHOT_LOG=info \
        OVERSHOT_LOG_FILE=$out/share.log.$i timeout 120 python3 "$client" >"$out/share.out.$i" 2>&1 &
done
most=0
while [ -n "$(jobs -r)" ]; do
    bytes=$(find "$folder" -type f ! -name lock -printf '%s\n' 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }')
    [ "$bytes" -gt "$most" ] && most=$bytes
    sleep 0.2
done
private=0
for i in 1 2; do
    check "$([ -n "$(sums "$out/share.plain")" ] && [ "$(sums "$out/share.out.$i")" = "$(sums "$out/share.plain")" ] && echo 1)" "process $i: md5s as without overshot"
    grep -h 'pass' "$out/share.out.$i" | sed 's/^/          /'
    grep -h 'are shared as' "$out/share.log.$i" | tail -1 | sed 's/^/          /'
    streamed=$(sed -n 's/.* resident, \([0-9]*\) streamed.*/\1/p' "$out/share.log.$i" | tail -1)
    more=$(sed -n 's/.*are shared as .*, \([0-9]*\) MiB are not.*/\1/p' "$out/share.log.$i" | tail -1)
    private=$((private + ${more:-0}))
done
ratio=$(awk -v b="$most" -v p="$private" -v s="${streamed:-0}" 'BEGIN { printf "%.3f", (s > 0 ? (b / 1048576 + p) / s : 99) }')
check "$(awk -v r="$ratio" 'BEGIN { print (r > 0 && r <= 1.05) ? 1 : 0 }')" "$((most >> 20)) MiB shared and $private MiB besides, for $streamed MiB that each streams: $ratio"
check "$([ ! -e "$folder" ] && echo 1)" "nothing is left in $folder"
[ $failed = 0 ] && echo "share: all passed" || echo "share: FAILED"
exit $failed
