"""A Mixtral shape of transformers: a router picks two of eight experts for every token."""
import torch
import transformers
from transformers import MixtralConfig, MixtralForCausalLM

import common

transformers.logging.set_verbosity_error()
torch.set_default_dtype(torch.bfloat16)
config = MixtralConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=6, num_attention_heads=16,
                       num_key_value_heads=8, vocab_size=32000, num_local_experts=8, num_experts_per_tok=2)
model = common.build(MixtralForCausalLM, config, torch).to("cuda")
ids = torch.randint(0, 32000, (1, 24), device="cuda", generator=torch.Generator("cuda").manual_seed(3))


def step():
    logits = model(ids, use_cache=False).logits
    return lambda: logits.float().cpu().numpy()


with torch.inference_mode():
    common.measure("mixtral", sum(p.nbytes for p in model.parameters()), step, torch.cuda.synchronize)
