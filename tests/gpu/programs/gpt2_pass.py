"""A GPT-2 shape of transformers, float32, with generation of a few tokens through its cache."""
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

import common

transformers.logging.set_verbosity_error()
config = GPT2Config(n_embd=2048, n_layer=18, n_head=16, n_positions=1024, bos_token_id=0, eos_token_id=None, pad_token_id=0)
model = common.build(GPT2LMHeadModel, config, torch).to("cuda")
ids = torch.randint(0, 50000, (1, 32), device="cuda", generator=torch.Generator("cuda").manual_seed(3))


def step():
    logits = model(ids, use_cache=False).logits
    return lambda: logits.float().cpu().numpy()


with torch.inference_mode():
    common.measure("gpt2", sum(p.nbytes for p in model.parameters()), step, torch.cuda.synchronize)
    tokens = model.generate(ids, max_new_tokens=24, do_sample=False, attention_mask=torch.ones_like(ids))
    print("gpt2: generated, md5", common.md5(tokens.cpu().numpy()))
