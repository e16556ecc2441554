"""Passes of a Llama of 8 layers over TOKENS (default 32) for SECONDS_LONG (default 30), each compared with the first.

Prints a line each second: passes so far and their mean in that second, and at the end the md5 of all outputs."""
import os
import time

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import common

transformers.logging.set_verbosity_error()
torch.set_default_dtype(torch.bfloat16)
config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32, vocab_size=32000)
model = common.build(LlamaForCausalLM, config, torch).to("cuda")
tokens = int(os.environ.get("TOKENS", "32"))
ids = torch.randint(0, 32000, (max(1, tokens // 2048), min(tokens, 2048)), device="cuda", generator=torch.Generator("cuda").manual_seed(3))
weight_bytes = sum(p.nbytes for p in model.parameters())
print(f"long: {weight_bytes * 1e-9:.2f} GB of weights", flush=True)

sums, passes, begin = set(), 0, time.time()
tick, since = begin, 0
with torch.inference_mode():
    while time.time() < begin + float(os.environ.get("SECONDS_LONG", "30")):
        sums.add(common.md5(model(ids, use_cache=False, logits_to_keep=1).logits.float().cpu().numpy()))
        passes += 1
        since += 1
        if time.time() >= tick + 1:
            print(f"long: {time.time() - begin:5.1f} s, {passes} passes, pass {(time.time() - tick) / since * 1e3:.2f} ms", flush=True)
            tick, since = time.time(), 0
print(f"long: {passes} passes, md5 {' '.join(sorted(sums))}", flush=True)
