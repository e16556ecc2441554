"""A pair of ranks under torchrun: each holds half of every layer, NCCL adds the halves up."""
import os

import torch
import torch.distributed as dist

import common

WIDTH, LAYERS = 4096, 20
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def weight(index, *shape):
    return torch.from_numpy(common.values(index, *shape)).to(torch.bfloat16).cuda()


half = 3 * WIDTH // 2
weights = [(weight(4 * i + rank, WIDTH, half), weight(4 * i + 2 + rank, half, WIDTH)) for i in range(LAYERS)]
x = weight(99, 16, WIDTH) * 50


def step():
    h = x
    for up, down in weights:
        part = torch.relu(h @ up) @ down
        dist.all_reduce(part)
        h = h + part
        h = h / (h.abs().max() + 1e-3)
    return lambda: h.float().cpu().numpy()


with torch.inference_mode():
    common.measure(f"rank {rank}", sum(u.nbytes + d.nbytes for u, d in weights), step, torch.cuda.synchronize)
dist.destroy_process_group()
