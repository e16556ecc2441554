"""transformers' generate with a static cache, which compiles the decoding step and replays it as CUDA graphs."""
import time

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import common

transformers.logging.set_verbosity_error()
torch.set_default_dtype(torch.bfloat16)
config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32,
                     num_key_value_heads=32, vocab_size=32000, max_position_embeddings=2048, bos_token_id=1,
                     eos_token_id=None, pad_token_id=0)
model = common.build(LlamaForCausalLM, config, torch).to("cuda")
ids = torch.randint(0, 32000, (1, 32), device="cuda", generator=torch.Generator("cuda").manual_seed(3))


def generate(count):
    return model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, cache_implementation="static",
                          attention_mask=torch.ones_like(ids))


with torch.inference_mode():
    start = time.time()
    generate(8)
    torch.cuda.synchronize()
    print(f"generate: first {time.time() - start:.1f} s")
    generate(40)
    torch.cuda.synchronize()
    start = time.time()
    tokens = generate(40)
    torch.cuda.synchronize()
    weight_bytes = sum(p.nbytes for p in model.parameters())
    print(f"generate: {weight_bytes * 1e-9:.2f} GB of weights, pass {(time.time() - start) / 40 * 1e3:.2f} ms, "
          f"md5 {common.md5(tokens.cpu().numpy())}")
