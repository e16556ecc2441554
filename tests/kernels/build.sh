#!/bin/sh
# Remakes images/*.fatbin from the portable sources, for real GPUs and for the simulator's image reader: sm_75 and sm_90 code
# and compute_75 PTX, LZ4-compressed (every driver since CUDA 12 reads it). Needs nvcc; the images are committed, so that a
# build does not. No contraction of a*b+c: host and GPU agree bit for bit.
# Usage: build.sh [NAME...]      default: every *.cu here
set -eu
here=$(cd "$(dirname "$0")" && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$here/images"
if [ $# -eq 0 ]; then
    for source in "$here"/*.cu; do
        set -- "$@" "$(basename "$source" .cu)"
    done
fi
for name in "$@"; do
    "$nvcc" -fmad=false -frandom-seed "$name" -Xfatbin -compress-all --compress-mode=speed \
        -gencode arch=compute_75,code=sm_75 -gencode arch=compute_90,code=sm_90 \
        -gencode arch=compute_75,code=compute_75 -fatbin -o "$here/images/$name.fatbin" "$here/$name.cu"
    echo "images/$name.fatbin: $(wc -c <"$here/images/$name.fatbin") bytes"
done
