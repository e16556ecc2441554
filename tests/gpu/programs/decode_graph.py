"""A decoding loop captured as one CUDA graph and replayed 200 times: layers with a cache of keys and values that grows
by one position a step, sampling by argmax, all on the device."""
import time

import torch

import common

WIDTH, HEADS, LAYERS, STEPS, VOCABULARY = 4096, 32, 12, 200, 32000
torch.set_default_dtype(torch.bfloat16)


def weight(index, *shape):
    return torch.from_numpy(common.values(index, *shape)).to(torch.bfloat16).cuda()


layers = [{"qkv": weight(4 * i, WIDTH, 3 * WIDTH), "out": weight(4 * i + 1, WIDTH, WIDTH),
           "up": weight(4 * i + 2, WIDTH, 3 * WIDTH), "down": weight(4 * i + 3, 3 * WIDTH, WIDTH)} for i in range(LAYERS)]
embedding, head = weight(900, VOCABULARY, WIDTH), weight(901, WIDTH, VOCABULARY)
weight_bytes = sum(w.nbytes for layer in layers for w in layer.values()) + embedding.nbytes + head.nbytes
keys = torch.zeros(LAYERS, HEADS, STEPS, WIDTH // HEADS, device="cuda")
cached = torch.zeros_like(keys)
token = torch.zeros(1, dtype=torch.long, device="cuda")
position = torch.zeros(1, dtype=torch.long, device="cuda")
said = torch.zeros(STEPS, dtype=torch.long, device="cuda")
places = torch.arange(STEPS, device="cuda")


def norm(x):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype)


def step():
    x = embedding[token]
    seen = torch.where(places <= position, 0.0, float("-inf"))
    for index, layer in enumerate(layers):
        q, k, v = (norm(x) @ layer["qkv"]).view(3, HEADS, WIDTH // HEADS)
        keys[index].index_copy_(1, position, k.unsqueeze(1))
        cached[index].index_copy_(1, position, v.unsqueeze(1))
        scores = torch.einsum("hd,hsd->hs", q, keys[index]) / (WIDTH // HEADS) ** 0.5 + seen
        mixed = torch.einsum("hs,hsd->hd", scores.softmax(-1), cached[index]).reshape(1, WIDTH)
        x = x + mixed @ layer["out"]
        x = x + torch.nn.functional.silu(norm(x) @ layer["up"]) @ layer["down"]
    token.copy_((norm(x) @ head).argmax(-1))
    said.index_copy_(0, position, token)
    position.add_(1)


def begin():
    for tensor in (keys, cached, said, position):
        tensor.zero_()
    token.fill_(1)


with torch.inference_mode():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(2):
        begin()
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(STEPS):
            graph.replay()
        torch.cuda.synchronize()
        seconds = (time.time() - start) / STEPS
    print(f"decode: {weight_bytes * 1e-9:.2f} GB of weights, {STEPS} steps, pass {seconds * 1e3:.2f} ms, "
          f"md5 {common.md5(said.cpu().numpy())}")
