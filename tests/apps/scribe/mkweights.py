#!/usr/bin/env python3
"""Writes a weights file of scribe's format with random values: mkweights.py OUT.safetensors [--layers N] [--seed S] ...

For tests that need other shapes than the trained model's, or no training at all. Standard library only.
"""
import argparse
import array
import json
import random
import struct
import sys


def shapes(g):
    """(name, shape) in the order of the file; train.py writes the same."""
    d, m = g.model, g.mlp
    for i in range(g.layers):
        for name, rows, columns in (("qkv", 3 * d, d), ("out", d, d), ("up", m, d), ("down", d, m)):
            if name in ("qkv", "up"):
                norm = "ln1" if name == "qkv" else "ln2"
                yield f"layers.{i}.{norm}.weight", (d,)
                yield f"layers.{i}.{norm}.bias", (d,)
            yield f"layers.{i}.{name}.weight", (rows, columns)
            yield f"layers.{i}.{name}.bias", (rows,)
    yield "embed.weight", (g.vocabulary, d)
    yield "final.weight", (d,)
    yield "final.bias", (d,)
    yield "head.weight", (g.vocabulary, d)


def values(name, shape, source):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if len(shape) == 1:
        return array.array("f", [1.0 if name.endswith("weight") else 0.0]) * count
    scale = 0.7 * shape[1] ** -0.5 / 2**31
    whole = array.array("i")
    whole.frombytes(source.randbytes(4 * count))
    return array.array("f", [scale * v for v in whole])


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out")
    for name, default in (("layers", 14), ("model", 208), ("heads", 8), ("mlp", 832), ("vocabulary", 128), ("seed", 1)):
        options.add_argument(f"--{name}", type=int, default=default)
    g = options.parse_args()
    source = random.Random(g.seed)
    metadata = {k: str(getattr(g, k)) for k in ("layers", "model", "heads", "mlp", "vocabulary")} | {"format": "scribe"}
    header, payload, at = {"__metadata__": metadata}, [], 0
    for name, shape in shapes(g):
        data = values(name, shape, source)
        if sys.byteorder == "big":
            data.byteswap()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * len(data)]}
        payload.append(data)
        at += 4 * len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(g.out, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for data in payload:
            data.tofile(out)
    print(f"{g.out}: {8 + len(text) + at} bytes")


if __name__ == "__main__":
    main()
