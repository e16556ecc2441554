#!/usr/bin/env bash
# tests/gpu/run.sh [BUILD]: the programs of this project and real ones under overshot on a real GPU, one table at the end.
#
#   BUILD     a build folder, or a folder with bin/{libovershot.so,stack,scribe} and images/ made elsewhere (default:
#             build/default, built first)
#   CLIENTS   folder with llama_pass.py and others (PyTorch, transformers); without it only our own programs run
#   OUT       folder for the logs (default: a new one in /tmp)
#   GPU       number of the device to use (default 0)
#   PASSES    passes of 32 tokens whose mean is taken (default 150)
#   GPU_QUICK=1 leaves out the longer runs; LOG=debug has overshot log more; BUDGET_A, B, C and ALL are MiB.
#
# Each run is compared with one without overshot in the same run: md5 of the output, time, device memory as the
# driver itself reports it (nvidia-smi, sampled), and the link's peak, measured by pinned copies of 256 MiB.
# Exit status: 0 all equal and within the limits, 1 something was not, 77 no GPU.
set -uo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$(cd "$here/../.." && pwd)
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "run.sh: no GPU here" >&2; exit 77; }
build=${1:-}
if [ -z "$build" ]; then
    (cd "$root" && . cmake/setup.sh && ov_setup && ov_build default) || exit 1
    build=$root/build/default
fi
if [ -d "$build/bin" ]; then
    lib=$build/bin/libovershot.so stack=$build/bin/stack scribe=$build/bin/scribe images=$build/images
    weights=${WEIGHTS:-$build/scribe.safetensors}
    export LD_LIBRARY_PATH=$build/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    lib=$build/shim/libovershot.so stack=$build/tests/apps/stack scribe=$build/tests/apps/scribe
    images=$root/tests/kernels/images weights=$root/tests/apps/scribe/scribe.safetensors
fi
export APP_IMAGES=$images PYTHONUNBUFFERED=1
out=${OUT:-$(mktemp -d /tmp/overshot-gpu.XXXXXX)}
gpu=${GPU:-0}
export CUDA_VISIBLE_DEVICES=$gpu
failed=0
rows=$out/rows.txt
: >"$rows"

say() { printf '%s\n' "$*" | tee -a "$rows"; }
check() { # CONDITION(0/1) WHAT
    if [ "$1" = 1 ]; then say "  ok      $2"; else say "  FAILED  $2"; failed=1; fi
}
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { print (a + 0 >= b + 0) ? 1 : 0 }'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { print (a + 0 <= b + 0 && a + 0 > 0) ? 1 : 0 }'; }
div() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", (b + 0 > 0) ? a / b : 0 }'; }

# Runs a command and writes <name>.log and <name>.mem (largest device memory in use while it ran, MiB).
run() { # NAME COMMAND...
    local name=$1 peak=0 used sampler
    shift
    (
        while :; do
            used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "$gpu" 2>/dev/null || echo 0)
            [ "$used" -gt "$peak" ] && { peak=$used; echo "$peak" >"$out/$name.mem"; }
            sleep 0.2
        done
    ) &
    sampler=$!
    timeout "${RUN_LIMIT:-120}" "$@" >"$out/$name.log" 2>&1
    local status=$?
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
    [ $status = 0 ] || { say "  FAILED  $name: exit status $status: $(grep -v '^overshot:' "$out/$name.log" | tail -1)"; failed=1; }
    return $status
}
shim() { # NAME [OVERSHOT_X=... ] -- COMMAND...
    local name=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    run "$name" env LD_PRELOAD="$lib" OVERSHOT_SUMMARY=1 OVERSHOT_LOG="${LOG:-info}" "${settings[@]}" "$@"
}
memory() { cat "$out/$1.mem" 2>/dev/null || echo 0; }
summary() { grep -h 'overshot: device 0: \(weights\|all of\)' "$out/$1.log" | tail -1 | cut -c11-; }

say "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $(date -u +%F), overshot $(cd "$root" && git rev-parse --short HEAD 2>/dev/null || echo '')"

say "== programs of our own"
run stack.plain "$stack" && shim stack.shim OVERSHOT_BUDGET=16M -- "$stack"
check "$([ "$(grep digest "$out/stack.plain.log")" = "$(grep digest "$out/stack.shim.log")" ] && echo 1)" "stack, 24 MiB of weights in 16 MiB: $(summary stack.shim)"
mix=(--pointers mix --layers 10 --weights 3 --fused 2 --sparse both --cache 2M --workspace 3M --grow --late-writes 3 --realloc 2 --readback 3 --passes 6)
run mix.plain "$stack" "${mix[@]}" && shim mix.shim OVERSHOT_BUDGET=64M -- "$stack" "${mix[@]}"
check "$([ "$(grep digest "$out/mix.plain.log")" = "$(grep digest "$out/mix.shim.log")" ] && echo 1)" "stack, everything mixed: $(summary mix.shim)"
write=(--weights "$weights" --temperature 0.5 --seed 3 --tokens 160 --prompt '1 In the beginning ')
run scribe.plain "$scribe" "${write[@]}" && shim scribe.shim OVERSHOT_BUDGET=10M OVERSHOT_LOG=error OVERSHOT_LOG_FILE="$out/scribe.shim.err" -- "$scribe" "${write[@]}"
check "$([ "$(grep -v '^overshot:' "$out/scribe.shim.log" | md5sum)" = "$(md5sum <"$out/scribe.plain.log")" ] && echo 1)" "scribe, 29 MB of weights in 10 MiB: same text"

if [ -f "${CLIENTS:-}/llama_pass.py" ]; then
    python3 "$here/link_peak.py" >"$out/peak.log" 2>&1
    peak=$(sed -n 's/^link peak \([0-9.]*\).*/\1/p' "$out/peak.log")
    context=$(sed -n 's/.*context \([0-9]*\) MiB.*/\1/p' "$out/peak.log")
    export N=${PASSES:-150} # of them, the first few are timed, once with their copies held back
    say "== llama_pass.py; link peak $peak GB/s (pinned copies of 256 MiB), context $context MiB"
    pass() { sed -n "s/.*$2 pass \([0-9.]*\) ms.*/\1/p" "$out/$1.log" | head -1; }
    sums() { grep -o 'md5 [0-9a-f]*' "$out/$1.log" | tr '\n' ' '; }
    run llama.plain python3 "$CLIENTS/llama_pass.py"
    short=$(pass llama.plain 32-token) long=$(pass llama.plain 16k-token)
    say "  resident, without overshot: 32-token pass $short ms, 16k-token pass $long ms, $(memory llama.plain) MiB in use"
    # MiB streamed according to the last plan before the line that matches; "16k" also takes plans made in its warm-up.
    streamed_before() { # NAME PATTERN
        awk -v stop="$2" '$0 ~ stop { exit } /plan [0-9]+:/ { for (i = 1; i <= NF; i++) if ($i ~ /^streamed/) s = $(i - 1) } END { print s + 0 }' "$out/$1.log"
    }
    weights_mib=7924
    percent() { awk -v s="$1" -v w=$weights_mib 'BEGIN { printf "%.0f %%", 100 * s / w }'; }
    llama() { # NAME BUDGET_MIB fits|"" SETTINGS... ; fits: the activations of 16k tokens fit the budget, so their time counts
        local name=$1 budget=$2 fits=$3 few many ms rate
        shift 3
        shim "$name" OVERSHOT_BUDGET="${budget}M" "$@" -- python3 "$CLIENTS/llama_pass.py" || return
        few=$(streamed_before "$name" '32-token pass') many=$(streamed_before "$name" '16k-token pass')
        ms=$(pass "$name" 32-token)
        say "  budget $budget MiB $*: 32-token pass $ms ms with $few MiB ($(percent "$few")) streamed, 16k-token pass $(pass "$name" 16k-token) ms with $many MiB ($(percent "$many"))"
        say "          $(summary "$name")"
        check "$([ "$(sums "$name")" = "$(sums llama.plain)" ] && echo 1)" "both md5s as without overshot"
        check "$(at_most "$(memory "$name")" "$((budget + context + 64))")" "device memory $(memory "$name") MiB <= budget + context"
        if [ "$few" -gt 0 ]; then
            rate=$(awk -v s="$few" -v t="$ms" 'BEGIN { printf "%.2f", s * 1048576 / t * 1e-6 }')
            check "$(at_least "$(div "$rate" "$peak")" 0.97)" "32-token pass: $few MiB at $rate GB/s = $(div "$rate" "$peak") of the link's peak"
        fi
        if [ -n "$fits" ]; then
            check "$(at_most "$(div "$(pass "$name" 16k-token)" "$long")" 1.03)" "16k-token pass: $(div "$(pass "$name" 16k-token)" "$long") of the resident run"
        else
            say "          (16k-token pass: $(div "$(pass "$name" 16k-token)" "$long") of the resident run; its activations alone exceed this budget)"
        fi
    }
    llama llama.a "${BUDGET_A:-6400}" fits
    [ -n "${GPU_QUICK:-}" ] || llama llama.b "${BUDGET_B:-2650}" ""
    llama llama.c "${BUDGET_C:-11264}" fits
    llama llama.all "${BUDGET_ALL:-8192}" fits OVERSHOT_TIERS=streamed
    [ -n "${GPU_QUICK:-}" ] || {
        for round in 1 2 3; do # pairs, since the host's share of a pass is not steady
            N=60 run fits.plain$round python3 "$CLIENTS/llama_pass.py"
            N=60 shim fits.shim$round -- python3 "$CLIENTS/llama_pass.py"
        done
        best() { cat "$out"/$1?.log | sed -n "s/.*$2 pass \([0-9.]*\) ms.*/\1/p" | sort -n | head -1; }
        say "  everything fits (no budget set): $(summary fits.shim3)"
        for which in 32-token 16k-token; do
            ratio=$(div "$(best fits.shim $which)" "$(best fits.plain $which)")
            check "$(at_most "$ratio" 1.01)" "$which pass, best of three: $(best fits.shim $which) ms, $ratio of the run without overshot"
        done
    }
fi
say "logs: $out"
if [ $failed = 0 ]; then echo "gpu: all passed"; else echo "gpu: FAILED"; fi
exit $failed
