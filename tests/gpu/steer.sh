#!/usr/bin/env bash
# tests/gpu/steer.sh FOLDER: the budget of a running program is halved, doubled, doubled again, and all is restored.
#
#   FOLDER    with bin/libovershot.so and bin/overshot (or a build folder)
#   OUT       folder for the logs (default: a new one in /tmp)
#   GPU       number of the device to use (default 0)
#
# Every output of every pass has to have the md5 of a run without overshot, and device memory has to follow the budget.
# Exit status: 0 so it is, 1 it is not, 77 no GPU.
set -uo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "steer.sh: no GPU here" >&2; exit 77; }
lib=$1/shim/libovershot.so tool=$1/tools/overshot
[ -f "$lib" ] || lib=$1/bin/libovershot.so tool=$1/bin/overshot
out=${OUT:-$(mktemp -d /tmp/overshot-steer.XXXXXX)}
gpu=${GPU:-0}
export CUDA_VISIBLE_DEVICES=$gpu PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
client=$here/programs/long_pass.py
failed=0
check() { # CONDITION WHAT
    if [ "$1" = 1 ]; then echo "  ok      $2"; else echo "  FAILED  $2"; failed=1; fi
}
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "$gpu"; }
before=$(used)
SECONDS_LONG=2 timeout 90 python3 "$client" >"$out/plain.log" 2>&1
plain=$(sed -n 's/.*passes, md5 //p' "$out/plain.log")
LD_PRELOAD=$lib OVERSHOT_BUDGET=2G OVERSHOT_LOG=info OVERSHOT_LOG_FILE=$out/overshot.log SECONDS_LONG=26 \
    timeout 120 python3 "$client" >"$out/shim.log" 2>&1 &
job=$!
for _ in $(seq 600); do
    grep -q ' passes' "$out/shim.log" 2>/dev/null && break
    sleep 0.1
done
pid=$(pgrep -P "$job" -f "$client" | head -1)
sleep 4
context=800 # of the context and of what PyTorch's libraries load
step() { # BUDGET_MIB REQUEST
    local said memory
    said=$("$tool" ctl "${pid:-$job}" "$2" 2>&1)
    local status=$?
    sleep 4
    memory=$(($(used) - before))
    check "$([ $status = 0 ] && echo 1)" "$2: $said"
    check "$([ "$memory" -le $(($1 + context)) ] && echo 1)" "$2: device memory $memory MiB; $(grep 'pass ' "$out/shim.log" | tail -1)"
    "$tool" ctl "${pid:-$job}" status 2>&1 | sed 's/^/          /'
}
step 1024 budget=1G
step 2048 budget=2G
step 4096 budget=4G
step 100000 restore
wait "$job"
check "$([ $? = 0 ] && echo 1)" "the program ended well"
check "$([ -n "$plain" ] && [ "$(sed -n 's/.*passes, md5 //p' "$out/shim.log")" = "$plain" ] && echo 1)" "md5 of all outputs as without overshot: $(tail -1 "$out/shim.log")"
sed 's/^/          /' "$out/shim.log" | grep ' s, '
[ $failed = 0 ] && echo "steer: all passed" || echo "steer: FAILED"
exit $failed
