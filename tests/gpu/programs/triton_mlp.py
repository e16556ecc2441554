"""Triton's own matrix kernels (cuLaunchKernelEx, modules made at run time) over PyTorch's memory."""
import torch
import triton
import triton.language as tl

import common

WIDTH, LAYERS, ROWS = 4096, 20, 16


@triton.jit
def product(a, b, out, k, n, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        total += tl.dot(tl.load(a + rows[:, None] * k + inner[None, :]), tl.load(b + inner[:, None] * n + columns[None, :]))
    tl.store(out + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


def matmul(a, b):
    out = torch.empty(ROWS, b.shape[1], dtype=torch.bfloat16, device="cuda")
    product[(b.shape[1] // 64,)](a, b, out, a.shape[1], b.shape[1], ROWS=ROWS, BLOCK_N=64, BLOCK_K=64)
    return out


def weight(index, *shape):
    return torch.from_numpy(common.values(index, *shape)).to(torch.bfloat16).cuda()


weights = [(weight(2 * i, WIDTH, 3 * WIDTH), weight(2 * i + 1, 3 * WIDTH, WIDTH)) for i in range(LAYERS)]
x = weight(99, ROWS, WIDTH) * 50


def step():
    h = x
    for up, down in weights:
        h = h + matmul(torch.relu(matmul(h, up)), down)
        h = h / (h.abs().max() + 1e-3)
    return lambda: h.float().cpu().numpy()


with torch.inference_mode():
    common.measure("triton", sum(u.nbytes + d.nbytes for u, d in weights), step, torch.cuda.synchronize)
