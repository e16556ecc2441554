#!/bin/sh
# Makes inspect.ptx from inspect.cu. Run it by hand after a change; the result is committed, so that a build needs no nvcc.
# The version and target lines are lowered to what a CUDA 12.0 driver and a Volta GPU accept: the code uses nothing newer.
set -eu
cd "$(dirname "$0")"
nvcc -ptx -O3 -arch=compute_75 -I../../tests/kernels -o inspect.ptx.new inspect.cu
sed -i -e 's/^\.version .*/.version 8.0/' -e 's/^\.target .*/.target sm_70/' -e '/^\/\//d' -e '/^$/d' inspect.ptx.new
mv inspect.ptx.new inspect.ptx
