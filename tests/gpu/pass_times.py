"""Runs a program of transformers and writes what each pass took: pass_times.py OUT PROGRAM [ARGUMENT...]

A pass is a call of the causal model's forward, from when the GPU is idle to when it is idle again; one line each,
milliseconds. The program prints what it prints.
"""
import runpy
import sys
import time

import torch
import transformers

out = open(sys.argv[1], "w", buffering=1)
forward = transformers.LlamaForCausalLM.forward


def timed(self, *args, **kwargs):
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = forward(self, *args, **kwargs)
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - start) * 1e3:.3f}", file=out)
    return result


transformers.LlamaForCausalLM.forward = timed
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
