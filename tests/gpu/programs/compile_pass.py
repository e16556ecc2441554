"""A Llama shape under torch.compile(mode="reduce-overhead"): Triton kernels of the compiler, replayed as CUDA graphs."""
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import common

transformers.logging.set_verbosity_error()
torch.set_default_dtype(torch.bfloat16)
config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32,
                     num_key_value_heads=32, vocab_size=32000, max_position_embeddings=2048)
model = common.build(LlamaForCausalLM, config, torch).to("cuda")
compiled = torch.compile(model, mode="reduce-overhead")
ids = torch.randint(0, 32000, (1, 32), device="cuda", generator=torch.Generator("cuda").manual_seed(3))


def step():
    logits = compiled(ids, use_cache=False).logits
    return lambda: logits.float().cpu().numpy()


with torch.inference_mode():
    common.measure("compile", sum(p.nbytes for p in model.parameters()), step, torch.cuda.synchronize)
