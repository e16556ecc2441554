#!/usr/bin/env bash
# tests/gpu/predict.sh FOLDER: what overshot predicts that a pass takes against what it takes, on a real GPU, at budgets
# of 20, 40, 60 and 80 % of the weights; and against the same with what is used first resident (OVERSHOT_STRATEGY=greedy).
#
#   FOLDER    with bin/libovershot.so (or a build folder)
#   CLIENTS   folder with llama_pass.py and graph_pass.py
#   OUT       folder for the logs (default: a new one in /tmp)
#   GPU       number of the device to use (default 0)
#   SECONDS_MOST  no run is begun after so many (default 200); what was left out is said
#   LLAMA_LAYERS, GRAPH_LAYERS  (default 8 and 12)
#   WHAT      which of: llama graph long (default: all)
#   GREEDY=0  leaves out the comparison
#
# The 32-token pass runs until its time is printed: the activations of the 16k-token pass do not fit these budgets. That
# one is long_pass.py, with a budget of ROOM_LONG MiB (default 3600) more. Its computation is timed over 12 passes: the
# GPU's clocks fall within the first second of such work, by 4 %.
# Exit status: 0 all predictions within 5 %, 1 not, 77 no GPU.
set -uo pipefail
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "predict.sh: no GPU here" >&2; exit 77; }
here=$(dirname "$(readlink -f "$0")")
build=$1
lib=$build/shim/libovershot.so
[ -f "$lib" ] || lib=$build/bin/libovershot.so
clients=${CLIENTS:?a folder with llama_pass.py and graph_pass.py}
out=${OUT:-$(mktemp -d /tmp/overshot-predict.XXXXXX)}
mkdir -p "$out"
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES=${GPU:-0}
most=${SECONDS_MOST:-200}
failed=0

# overshot NAME BUDGET_MIB STRATEGY UNTIL COMMAND...: until a line matches UNTIL, or it ends.
overshot() {
    local name=$1 budget=$2 strategy=$3 until=$4 pid
    shift 4
    if [ $SECONDS -gt "$most" ]; then
        echo "  left out $name: more than $most s have passed"
        return 1
    fi
    timeout 60 env LD_PRELOAD="$lib" OVERSHOT_BUDGET="${budget}M" OVERSHOT_STRATEGY="$strategy" OVERSHOT_LOG=debug \
        OVERSHOT_SUMMARY=1 "$@" >"$out/$name.log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! grep -q "$until" "$out/$name.log"; do
        sleep 0.2
    done
    sleep 0.2
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    grep -q "$until" "$out/$name.log" && return 0
    echo "  FAILED  $name: $(grep -v '^overshot:' "$out/$name.log" | tail -n 1)"
    failed=1
    return 1
}

printed() { sed -n "s/.*$2 \([0-9.]*\) ms.*/\1/p" "$out/$1.log" | tail -n 1; }
# What was predicted last before that.
predicted() {
    awk -v stop="$2" '$0 ~ stop && !/^overshot:/ { exit } /a pass computes .* predicted/ { told = $0 } END { print told }' "$out/$1.log" |
        sed -n 's/.* predicted \([0-9.]*\) ms.*/\1/p'
}

compare() { # NAME WHAT PATTERN [LAST]: the last prediction before LAST, or PATTERN
    local pass told
    pass=$(printed "$1" "$3") told=$(predicted "$1" "${4:-$3}")
    if [ -z "$told" ]; then
        echo "  FAILED  $2: $pass ms, nothing was predicted"
        failed=1
    elif awk -v a="$told" -v b="$pass" 'BEGIN { exit !(a / b > 0.95 && a / b < 1.05) }'; then
        echo "  ok      $2: $pass ms, predicted $told: $(awk -v a="$told" -v b="$pass" 'BEGIN { printf "%.3f", a / b }')"
    else
        echo "  FAILED  $2: $pass ms, predicted $told: $(awk -v a="$told" -v b="$pass" 'BEGIN { printf "%.3f", a / b }')"
        failed=1
    fi
}

beside_greedy() { # NAME PATTERN
    echo "          $(printed "$1" "$2") ms against $(printed "$1.greedy" "$2") ms with what is used first resident"
}

percents() { # WHAT PERCENT...
    case " ${WHAT:-llama graph long} " in *" $1 "*) echo "${@:2}" ;; esac
}

# At each budget: the prediction, then what is used first resident.
sweep() { # NAME WEIGHTS_MIB WHAT PASSES PASSES_GREEDY COMMAND... : N is how many passes COMMAND makes; prints WHAT
    local name=$1 weights=$2 what=$3 passes=$4 greedy=$5 percent budget
    shift 5
    for percent in $(percents "$name" 20 40 60 80); do
        budget=$((weights * percent / 100 + 64))
        echo "== $name, $percent % of $weights MiB"
        overshot "$name.$percent" $budget auto "$what" N="$passes" "$@" || continue
        compare "$name.$percent" "$what" "$what"
        if [ "${GREEDY:-1}" != 0 ] && overshot "$name.$percent.greedy" $budget greedy "$what" N="$greedy" "$@"; then
            beside_greedy "$name.$percent" "$what"
        fi
    done
}

layers=${LLAMA_LAYERS:-8} layers_graph=${GRAPH_LAYERS:-12}
weights=$((500 + layers * 464)) # MiB
sweep llama $weights '32-token pass' 150 60 LAYERS="$layers" python3 "$clients/llama_pass.py"
sweep graph $((layers_graph * 192)) replay 600 60 LAYERS="$layers_graph" python3 "$clients/graph_pass.py"

for percent in $(percents long 20 40 60 80); do
    budget=$((weights * percent / 100 + ${ROOM_LONG:-3600}))
    echo "== long_pass.py, 16k tokens, $percent % of $weights MiB and ${ROOM_LONG:-3600} MiB"
    overshot long.$percent $budget auto 'passes, md5' OVERSHOT_PROFILE_CYCLES=12 TOKENS=16384 SECONDS_LONG=14 python3 "$here/programs/long_pass.py" || continue
    compare long.$percent "16k-token pass" 'passes, pass' 'passes, md5'
done
echo "$SECONDS s; logs in $out"
exit $failed
