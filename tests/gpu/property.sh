#!/usr/bin/env bash
# tests/gpu/property.sh FOLDER [FROM TO]: the random programs of tests/engine/property.sh on a real GPU (seeds 1 to 120).
#
#   FOLDER  with bin/libovershot.so, bin/stack and images/, or a build folder
#   GPU     number of the device to use (default 0); `0,1` lets programs use two
#   JOBS    programs at a time (default 6)
#
# Exit status: 0 all compute what they compute without overshot, 1 not, 77 no GPU.
set -uo pipefail
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || { echo "property.sh: no GPU here" >&2; exit 77; }
here=$(dirname "$(readlink -f "$0")")
build=$1 from=${2:-1} to=${3:-120} jobs=${JOBS:-6}
lib=$build/bin/libovershot.so stack=$build/bin/stack images=$build/images
[ -f "$lib" ] || lib=$build/shim/libovershot.so stack=$build/tests/apps/stack images=$here/../kernels/images
export CUDA_VISIBLE_DEVICES=${GPU:-0} APP_IMAGES=$images
case $CUDA_VISIBLE_DEVICES in
*,*) ;;
*) export STACK_OPTIONS="${STACK_OPTIONS:-} --devices 1" ;;
esac
counts=$(mktemp -d)
trap 'rm -rf "$counts"' EXIT
size=$(((to - from + jobs) / jobs)) failed=0
for ((first = from; first <= to; first += size)); do
    last=$((first + size - 1 < to ? first + size - 1 : to))
    "$here/../engine/property.sh" "$first" "$last" "$counts" "$lib" real "$stack" >"$counts.$first" 2>&1 &
    eval "batch_$!=$first"
done
for pid in $(jobs -p); do
    wait "$pid" || failed=1
    number=batch_$pid
    cat "$counts.${!number}"
    rm -f "$counts.${!number}"
done
[ $failed = 0 ] && "$here/../engine/property.sh" share "$counts" && echo "property: all passed" && exit 0
echo "property: FAILED"
exit 1
