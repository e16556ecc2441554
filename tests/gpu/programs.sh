#!/usr/bin/env bash
# tests/gpu/programs.sh FOLDER: programs of many kinds on a real GPU, each without overshot and with it under a budget of
# a part of its weights; one table at the end.
#
#   FOLDER    with bin/libovershot.so (or a build folder)
#   CLIENTS   folder with llama_pass.py and jax_mlp.py; without it they are left out
#   OUT       folder for the logs (default: a new one in /tmp)
#   ONLY      a pattern: which programs
#   GPU       number of the device to use (default 0); the pair of ranks takes the first two
#   RUN_LIMIT seconds that one program may take (default 240: JAX's own preallocation, and activations that do not fit)
#
# Shown for each: same md5, device memory as the driver reports it against budget and context, the pass against the link
# (bytes that are streamed over the link's peak, in the same run) or against the resident run, and how long the first
# pass took against the time that its weights need over the link. Exit status: 0 all as they should be, 1 not, 77 no GPU.
set -uo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "programs.sh: no GPU here" >&2; exit 77; }
build=$1
lib=$build/shim/libovershot.so
[ -f "$lib" ] || lib=$build/bin/libovershot.so
out=${OUT:-$(mktemp -d /tmp/overshot-programs.XXXXXX)}
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
gpu=${GPU:-0}
export CUDA_VISIBLE_DEVICES=$gpu
failed=0

sample() { # FILE: the largest memory in use on the first device, until killed
    local peak=0 used
    while :; do
        used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "$gpu" 2>/dev/null || echo 0)
        [ "$used" -gt "$peak" ] && { peak=$used; echo "$peak" >"$1"; }
        sleep 0.2
    done
}
run() { # NAME COMMAND...
    local name=$1 sampler status
    shift
    sample "$out/$name.mem" &
    sampler=$!
    timeout "${RUN_LIMIT:-240}" "$@" >"$out/$name.log" 2>&1
    status=$?
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
    [ $status = 0 ] || { echo "  FAILED  $name: exit status $status: $(grep -v '^overshot:' "$out/$name.log" | tail -1)"; failed=1; }
    return $status
}
check() { # CONDITION WHAT
    if [ "$1" = 1 ]; then echo "  ok      $2"; else echo "  FAILED  $2"; failed=1; fi
}
number() { sed -n "s/.*$2.*/\1/p" "$out/$1.log" | tail -1; }
sums() { grep -o 'md5 [0-9a-f]*\( [0-9a-f]\{32\}\)*' "$out/$1.log" | sort | tr '\n' ' '; }
rate() { awk -v mib="$1" -v ms="$2" -v peak="$3" 'BEGIN { if (ms > 0) printf "%.3f", mib * 1048576 / ms * 1e-6 / peak; else print 0 }'; }

# BUDGET in MiB. The variables of the program stand in front of its command, as for env; those of overshot are in
# SETTINGS. WITHOUT names an earlier program that is the same one without overshot. EXTRA: MiB that a library of the
# program takes beside its allocations.
program() { # NAME BUDGET COMMAND...
    local name=$1 budget=$2
    shift 2
    [[ $name =~ ${ONLY:-.} ]] || return 0
    echo "== $name, budget $budget MiB"
    if [ -n "${WITHOUT:-}" ] && [ -f "$out/$WITHOUT.plain.log" ]; then
        cp "$out/$WITHOUT.plain.log" "$out/$name.plain.log" && cp "$out/$WITHOUT.plain.mem" "$out/$name.plain.mem"
    else
        run "$name.plain" env "$@" || return 0
    fi
    run "$name.shim" env LD_PRELOAD="$lib" OVERSHOT_BUDGET="${budget}M" OVERSHOT_SUMMARY=1 OVERSHOT_LOG="${LOG:-info}" ${SETTINGS:-} "$@" || return 0
    local streamed pass plain first gb context host
    check "$([ -n "$(sums "$name.plain")" ] && [ "$(sums "$name.plain")" = "$(sums "$name.shim")" ] && echo 1)" "same md5: $(sums "$name.shim" | cut -c1-80)"
    # What libraries load beside the context is no allocation of the program's; nor are page tables: 8 bytes for each 4 KiB
    # of host memory, in both ranges of addresses.
    host=$(number "$name.shim" 'budget, host \([0-9]*\) MiB')
    context=$(($(cat "$out/context.mem") + 300 + ${EXTRA:-0} + ${host:-0} / 256))
    check "$([ "$(cat "$out/$name.shim.mem")" -le $((budget + context)) ] && echo 1)" "device memory $(cat "$out/$name.shim.mem") MiB <= budget + $context (without overshot: $(cat "$out/$name.plain.mem"))"
    grep -h '^overshot: device .*: \(weights\|all of\)' "$out/$name.shim.log" | sed 's/^overshot: /          /' | cut -c1-230
    streamed=$(sed -n 's/.*plan [0-9]*: .* resident, \([0-9]*\) streamed.*/\1/p' "$out/$name.shim.log" | tail -1)
    pass=$(number "$name.shim" ' pass \([0-9.]*\) ms') plain=$(number "$name.plain" ' pass \([0-9.]*\) ms')
    first=$(number "$name.shim" 'first pass \([0-9.]*\) ms') gb=$(number "$name.shim" ' \([0-9.]*\) GB of weights, first')
    [ -z "$pass" ] || echo "          pass $pass ms (without overshot $plain ms), ${streamed:-0} MiB streamed: $(rate "${streamed:-0}" "$pass" "$peak") of the link"
    [ -z "$first" ] || [ -z "$gb" ] || echo "          first pass $first ms; its weights need $(awk -v g="$gb" -v p="$peak" 'BEGIN { printf "%.1f", 1e3 * g / p }') ms over the link"
}

python3 "$here/link_peak.py" >"$out/peak.log" 2>&1
peak=$(sed -n 's/^link peak \([0-9.]*\).*/\1/p' "$out/peak.log")
sed -n 's/.*context \([0-9]*\) MiB.*/\1/p' "$out/peak.log" >"$out/context.mem"
echo "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $(date -u +%F); link peak $peak GB/s, context $(cat "$out/context.mem") MiB"
here=$here/programs
if [ -n "${CLIENTS:-}" ]; then
    program llama_2g 2048 N=6 python3 "$CLIENTS/llama_pass.py"
    WITHOUT=llama_2g program llama_expandable 4096 N=6 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python3 "$CLIENTS/llama_pass.py"
    WITHOUT=llama_2g program llama_async 4096 N=6 PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python3 "$CLIENTS/llama_pass.py"
    # JAX maps 75 % of the memory there is before anything else: of less than the whole device, if it is told of less.
    SETTINGS="OVERSHOT_REPORT=6G ${SETTINGS:-}" program jax 1100 python3 "$CLIENTS/jax_mlp.py"
    WITHOUT=jax program jax_default 1100 python3 "$CLIENTS/jax_mlp.py"
    program graph 2048 N=20 python3 "$CLIENTS/graph_pass.py"
    WITHOUT=graph program graph_half 3072 N=20 python3 "$CLIENTS/graph_pass.py"
fi
# The same ways to multiply in both runs, and less than the whole device to map.
same="XLA_FLAGS=--xla_gpu_autotune_level=0"
SETTINGS="OVERSHOT_REPORT=6G ${SETTINGS:-}" program jax_copied 1100 $same python3 "$here/jax_decode.py"
SETTINGS="OVERSHOT_REPORT=6G OVERSHOT_BOUNDARIES=writes ${SETTINGS:-}" program jax_converted 1100 $same WEIGHTS=converted python3 "$here/jax_decode.py"
program cupy 2048 python3 "$here/cupy_mlp.py"
program triton 2048 python3 "$here/triton_mlp.py"
program mixtral 2048 python3 "$here/mixtral_pass.py"
program gpt2 2048 python3 "$here/gpt2_pass.py"
program compile 1536 python3 "$here/compile_pass.py"
program generate 1536 python3 "$here/generate_pass.py"
program decode 2048 python3 "$here/decode_graph.py"
program share 1024 python3 "$here/share_tensor.py"
if [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then
    export CUDA_VISIBLE_DEVICES=0,1
    # NCCL's kernels are code of the context.
    EXTRA=200 program tensor_parallel 1536 torchrun --nproc-per-node 2 "$here/tensor_parallel.py"
fi
echo "logs: $out"
[ $failed = 0 ] && echo "programs: all passed" || echo "programs: FAILED"
exit $failed
