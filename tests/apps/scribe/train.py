#!/usr/bin/env python3
"""Trains the character model that tests/apps/scribe.c runs: train.py CORPUS OUT.safetensors [options].

Decoder-only transformer over bytes below 128: pre-norm, ALiBi positions (no position table), squared-ReLU MLP, biases,
head not tied to the embedding. Everything that MODEL.md and scribe.c call geometry is in GEOMETRY. Training is bf16
autocast over float32 weights; the file holds float32. The learning rate falls to zero with the *time* spent, so
--seconds bounds the run on any GPU.
"""
import argparse
import json
import math
import struct
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

GEOMETRY = {"layers": 14, "model": 208, "heads": 8, "mlp": 832, "vocabulary": 128}
FILE_LIMIT_BYTES = 30_000_000
HELD_OUT_BYTES = 120_000


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        # ALiBi adds slope * key_position to each score (the query's own part cancels in the softmax). Written as two more
        # dimensions of q and k it needs no mask, so the fused causal kernels apply. position = 16 * high + low keeps
        # every factor exact in bf16.
        slope = 2.0 ** -(torch.arange(heads, dtype=torch.float32) + 1)
        place = torch.arange(context)
        self.register_buffer("extra_q", torch.stack((16 * slope, slope), -1)[:, None, :], persistent=False)
        self.register_buffer("extra_k", torch.stack((place // 16, place % 16), -1).float()[None], persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        extra_q = self.extra_q.to(q.dtype).expand(batch, -1, length, -1)
        extra_k = self.extra_k[:, :length].to(q.dtype).expand(batch, self.heads, -1, -1)
        fill = -(self.size + 2) % 8
        q = F.pad(torch.cat((q * self.size**-0.5, extra_q), -1), (0, fill))
        k = F.pad(torch.cat((k, extra_k), -1), (0, fill))
        v = F.pad(v, (0, 2 + fill))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)[..., : self.size]
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, mlp, context, dropout):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, mlp)
        self.down = nn.Linear(mlp, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attention(self.ln1(x)))
        return x + self.drop(self.down(F.relu(self.up(self.ln2(x))).square()))


class Model(nn.Module):
    def __init__(self, context, dropout):
        super().__init__()
        g = GEOMETRY
        self.embed = nn.Embedding(g["vocabulary"], g["model"])
        self.layers = nn.ModuleList(
            Layer(g["model"], g["heads"], g["mlp"], context, dropout) for _ in range(g["layers"])
        )
        self.final = nn.LayerNorm(g["model"])
        self.head = nn.Linear(g["model"], g["vocabulary"], bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = (2 * g["layers"]) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(parameter, std=0.02 if "embed" in name else scale * parameter.shape[1] ** -0.5 * 0.7)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final(x))


def tensors_of(state):
    """(name, tensor) in the order of the file: each layer's tensors together, embedding and head last."""
    for i in range(GEOMETRY["layers"]):
        for ours, theirs in (
            ("ln1", "ln1"), ("qkv", "attention.qkv"), ("out", "attention.out"),
            ("ln2", "ln2"), ("up", "up"), ("down", "down"),
        ):
            for part in ("weight", "bias"):
                yield f"layers.{i}.{ours}.{part}", state[f"layers.{i}.{theirs}.{part}"]
    for name in ("embed.weight", "final.weight", "final.bias", "head.weight"):
        yield name, state[name]


def write_safetensors(path, tensors, metadata):
    header, payload, at = {"__metadata__": metadata}, [], 0
    for name, tensor in tensors:
        data = tensor.detach().float().cpu().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        payload.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if 8 + len(text) + at > FILE_LIMIT_BYTES:
        sys.exit(f"train.py: the file would have {8 + len(text) + at} bytes, more than {FILE_LIMIT_BYTES}")
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for data in payload:
            out.write(data)
    return 8 + len(text) + at


def windows(text, batch, length):
    start = torch.randint(text.numel() - length - 1, (batch,), device=text.device)
    picked = text[start[:, None] + torch.arange(length + 1, device=text.device)].long()
    return picked[:, :-1], picked[:, 1:]


def loss_of(model, inputs, targets, cast):
    with cast():
        scores = model(inputs)
    return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def held_out_loss(model, text, length, cast):
    model.eval()
    count = min((text.numel() - 1) // length, 128)
    picked = text[: count * length + 1].long()
    inputs, targets = picked[:-1].view(count, length), picked[1:].view(count, length)
    loss = sum(loss_of(model, i, t, cast).item() * len(i) for i, t in zip(inputs.split(64), targets.split(64)))
    model.train()
    return loss / count


@torch.no_grad()
def sample(model, prompt, count, context, cast, device):
    model.eval()
    tokens = torch.tensor([list(prompt.encode())], device=device)
    for _ in range(count):
        with cast():
            scores = model(tokens[:, -context:])[:, -1]
        tokens = torch.cat((tokens, torch.multinomial((scores.float() / 0.7).softmax(-1), 1)), 1)
    return bytes(tokens[0].tolist()).decode("ascii", "replace")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("corpus")
    options.add_argument("out")
    options.add_argument("--seconds", type=float, default=120, help="length of the training (default 120)")
    options.add_argument("--steps", type=int, default=1 << 30, help="stop after this many steps, whatever the time")
    options.add_argument("--batch", type=int, default=96)
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    options.add_argument("--dropout", type=float, default=0.1)
    options.add_argument("--seed", type=int, default=1611)
    args = options.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")

    def cast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")

    with open(args.corpus, "rb") as corpus:
        text = torch.tensor(list(corpus.read()), dtype=torch.uint8)
    if text.max() >= GEOMETRY["vocabulary"]:
        sys.exit("train.py: the corpus holds bytes of 128 and more")
    text = text.to(device)
    # Held out: a stretch from the middle (prose of Kings), so that the whole rest, both ends included, is learned.
    middle = text.numel() // 3
    held_out = text[middle : middle + HELD_OUT_BYTES]
    text = torch.cat((text[:middle], text[middle + HELD_OUT_BYTES :]))

    model = Model(args.context, args.dropout).to(device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {text.numel()} characters, on {device}", flush=True)
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=args.rate, betas=(0.9, 0.98), **({"fused": True} if device == "cuda" else {}),
    )

    best, best_state, shown, step, begin = math.inf, None, 0.0, 0, time.monotonic()
    while True:
        spent = max((time.monotonic() - begin) / args.seconds, step / args.steps)
        if spent >= 1 or spent - shown >= 0.05:
            loss = held_out_loss(model, held_out, args.context, cast)
            print(f"step {step:6d}  {time.monotonic() - begin:6.1f} s  held-out loss {loss:.4f}", flush=True)
            shown = spent
            if loss < best:
                best, best_state = loss, {k: v.detach().clone() for k, v in model.state_dict().items()}
            if spent >= 1:
                break
        rate = args.rate * min(1, (step + 1) / 150) * 0.5 * (1 + math.cos(math.pi * spent))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, *windows(text, args.batch, args.context), cast)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step:6d}  {time.monotonic() - begin:6.1f} s  loss {loss.item():.4f}  rate {rate:.2e}", flush=True)
        step += 1

    model.load_state_dict(best_state)
    metadata = {k: str(v) for k, v in GEOMETRY.items()}
    metadata |= {"format": "scribe", "held_out_loss": f"{best:.4f}", "steps": str(step), "seed": str(args.seed)}
    size = write_safetensors(args.out, tensors_of(best_state), metadata)
    print(f"best held-out loss {best:.4f} ({best / math.log(2):.3f} bits a character); {args.out}: {size} bytes", flush=True)
    # What scribe must say for this prompt, up to rounding: the eight likeliest next characters with their log-probability.
    model.eval()
    with torch.no_grad():
        prompt = torch.tensor([list(b"1 In the beginning ")], device=device)
        scores, place = model(prompt)[0, -1].float().log_softmax(-1).topk(8)
    print("next after '1 In the beginning ':", [(chr(p), round(s, 3)) for s, p in zip(scores.tolist(), place.tolist())])
    print(sample(model, "Genesis 1\n\n1 In the beginning ", 400, args.context, cast, device), flush=True)


if __name__ == "__main__":
    main()
