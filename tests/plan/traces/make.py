#!/usr/bin/env python3
"""Makes the traces of this folder: profiles as runtime/profile.h describes them, of programs that are common, with times
worked out from shapes. ./make.py writes them all anew, but for h200-*.json: those were recorded on an H200
(docs/measurements/2026-11-30-h200.md), and the budget of the 32-token one was set to half of its weights. What they stand on, in one place:

    a kernel takes the longer of its arithmetic at 700 TFLOPS and its bytes at 4 TB/s, and 3 us more
    the link is PCIe 5 x16 as measured on an H200's host (docs/measurements)
"""
import json
import os
import random

MIB = 1 << 20
GIB = 1 << 30
LINK = [[65536, 17], [262144, 35], [1048576, 48], [2097152, 51], [16777216, 53.8], [67108864, 54.9], [268435456, 55.3]]


def compute_us(size, tokens, more_bytes=0, share=1.0):
    """Two bytes a parameter, two operations a parameter and token; `share` of the weight is read and used."""
    return max(size * share * tokens / 700e12, (size * share + more_bytes) / 4e12) * 1e6 + 3


class Trace:
    def __init__(self, name, budget, link=LINK):
        self.name, self.budget, self.link = name, int(budget), link
        self.weights, self.launches, self.cycles = [], [], []

    def weight(self, name, size, **more):
        self.weights.append({"name": name, "bytes": int(size), **more})
        return len(self.weights) - 1

    def cycle(self, name, repeats, touches):
        """touches: (weight, us)"""
        self.cycles.append({"name": name, "repeats": repeats, "touches": [t[0] for t in touches],
                            "compute_us": [round(t[1], 2) for t in touches]})

    def write(self, folder):
        rows = [json.dumps(w) for w in self.weights]
        cycles = [json.dumps(c) for c in self.cycles]
        with open(os.path.join(folder, self.name + ".json"), "w") as out:
            out.write('{"schema": "overshot profile", "version": 1, "program": {"name": "%s"},\n' % self.name)
            out.write(' "device": {"name": "computed", "bytes": 0, "driver": 0}, "budget": %d, "host_limit": 0,\n'
                      % self.budget)
            out.write(' "link": %s,\n "weights": [\n  %s],\n' % (json.dumps(self.link), ",\n  ".join(rows)))
            out.write(' "launches": %s,\n "cycles": [\n  %s]}\n' % (json.dumps(self.launches), ",\n  ".join(cycles)))


def decoder(trace, prefix, layers, hidden, kv, ffn, tokens, cache=0, fused=False):
    """A Llama's layers: the touches of one pass over `tokens` tokens."""
    touches = []
    shapes = [("q", hidden * hidden), ("k", hidden * kv), ("v", hidden * kv), ("o", hidden * hidden),
              ("gate", hidden * ffn), ("up", hidden * ffn), ("down", hidden * ffn)]
    for layer in range(layers):
        numbers = {}
        for name, count in shapes:
            size = 2 * count
            numbers[name] = trace.weight("%s%d.%s" % (prefix, layer, name), size)
            touches.append((numbers[name], compute_us(size, tokens, cache if name == "v" else 0)))
        if fused:
            trace.launches.append([numbers["gate"], numbers["up"]])
    return touches


def again(touches, tokens, trace):
    return [(w, compute_us(trace.weights[w]["bytes"], tokens)) for w, _ in touches]


def llama(name, budget, tokens, cache=0, fused=False):
    trace = Trace(name, budget)
    embedding = trace.weight("embedding", 128256 * 4096 * 2, sparse=True)
    touches = [(embedding, 3)] + decoder(trace, "layer", 32, 4096, 1024, 14336, tokens, cache, fused)
    head = trace.weight("head", 128256 * 4096 * 2)
    touches.append((head, compute_us(128256 * 4096 * 2, 1 if tokens > 512 else tokens)))
    trace.cycle("pass", 1, touches)
    return trace


def diffusion():
    trace = Trace("diffusion", 12 * GIB)
    text = decoder(trace, "text", 24, 4096, 4096, 10240, 512)
    steps = []
    for block in range(19):
        for part, size in (("qkv", 2 * 54), ("proj", 2 * 18), ("mlp", 2 * 144), ("mod", 2 * 108)):
            weight = trace.weight("double%d.%s" % (block, part), size * MIB)
            steps.append((weight, compute_us(size * MIB, 4608 if part != "mod" else 1)))
    for block in range(38):
        for part, size in (("in", 126), ("out", 90), ("mod", 54)):
            weight = trace.weight("single%d.%s" % (block, part), size * MIB)
            steps.append((weight, compute_us(size * MIB, 4608 if part != "mod" else 1)))
    decode = [(trace.weight("vae%d" % i, (4 + 2 * i) * MIB), 9000) for i in range(12)]
    trace.cycle("text encoder", 1, text)
    trace.cycle("denoiser", 28, steps)
    trace.cycle("decoder", 1, decode)
    return trace


def speculative():
    trace = Trace("speculative", 8 * GIB)
    draft = decoder(trace, "draft", 16, 2048, 512, 8192, 1)
    target = decoder(trace, "target", 32, 4096, 1024, 14336, 5)
    trace.cycle("draft", 4, draft)
    trace.cycle("target", 1, target)
    return trace


def encoder_decoder():
    trace = Trace("encoder-decoder", 4 * GIB)
    encoder = decoder(trace, "encoder", 24, 2048, 2048, 5120, 1024)
    decode = []
    for layer in range(24):
        for name in ("sq", "sk", "sv", "so", "cq", "co"):
            decode.append((trace.weight("decoder%d.%s" % (layer, name), 2048 * 2048 * 2), 6))
        for name in ("wi0", "wi1", "wo"):
            decode.append((trace.weight("decoder%d.%s" % (layer, name), 2048 * 5120 * 2), 9))
    head = trace.weight("head", 32128 * 2048 * 2)
    trace.cycle("encoder", 1, encoder)
    trace.cycle("decoder", 64, decode + [(head, 40)])
    return trace


def pyramid():
    """A network whose layers grow while its activations shrink: early layers compute, late ones are weights."""
    trace, draw = Trace("pyramid", 2 * GIB), random.Random(7)
    touches = []
    for layer in range(96):
        size = int((4 + 120 * (layer / 95) ** 2) * draw.uniform(0.7, 1.3)) * MIB
        weight = trace.weight("layer%d" % layer, size)
        touches.append((weight, compute_us(size, 40 + int(60000 * (1 - layer / 96) ** 4))))
    trace.cycle("pass", 1, touches)
    return trace


def uneven():
    """A decoder whose matrices are of four precisions, as mixed quantisation leaves them, over a long prompt."""
    trace, draw = Trace("uneven", 3 * GIB), random.Random(5)
    touches = []
    for layer in range(40):
        for name, size in (("q", 50), ("k", 50), ("v", 50), ("o", 50), ("gate", 135), ("up", 135), ("down", 135)):
            bits = draw.choice([3, 4, 4, 5, 8])
            bytes_ = int(size * MIB * bits / 16)
            touches.append((trace.weight("layer%d.%s" % (layer, name), bytes_), compute_us(size * MIB, 700)))
    trace.cycle("pass", 1, touches)
    return trace


def tied():
    trace = Trace("tied", 4 * GIB)
    table = trace.weight("table", 256000 * 2048 * 2)
    touches = [(table, compute_us(256000 * 2048 * 2, 1))] + decoder(trace, "layer", 18, 2048, 512, 16384, 1)
    touches.append((table, compute_us(256000 * 2048 * 2, 1)))
    touches.append((trace.weight("norm", 2 * MIB), 4))
    trace.cycle("pass", 1, touches)
    return trace


def huge():
    trace = Trace("huge-unit", 7 * GIB)
    touches = decoder(trace, "layer", 28, 3584, 512, 18944, 1)
    touches.append((trace.weight("head", 4 * GIB), compute_us(4 * GIB, 1)))
    trace.cycle("pass", 1, touches)
    return trace


def experts():
    """Mixtral, 32 sequences at once: every expert of a layer is read."""
    trace, touches = Trace("moe", 40 * GIB), []
    for layer in range(32):
        for name, size in (("q", 32), ("k", 8), ("v", 8), ("o", 32)):
            touches.append((trace.weight("layer%d.%s" % (layer, name), size * MIB), compute_us(size * MIB, 32)))
        for name in ("w1", "w3", "w2"):
            size = 8 * 112 * MIB
            touches.append((trace.weight("layer%d.experts.%s" % (layer, name), size), compute_us(size, 8)))
    trace.cycle("pass", 1, touches)
    return trace


def two_models():
    trace = Trace("two-models", 5.5 * GIB)
    base = [(trace.weight("base%d" % i, size * MIB), size * 7) for i, size in enumerate([20, 60, 100, 40] * 24)]
    refiner = [(trace.weight("refiner%d" % i, size * MIB), size * 8) for i, size in enumerate([30, 90, 50] * 28)]
    trace.cycle("base", 40, base)
    trace.cycle("refiner", 15, refiner)
    return trace


def chat():
    trace = Trace("chat", 9 * GIB)
    prefill = decoder(trace, "layer", 32, 4096, 1024, 14336, 1500)
    trace.cycle("prefill", 1, prefill)
    trace.cycle("decode", 200, again(prefill, 1, trace))
    return trace


def small_weights():
    trace, draw = Trace("many-small", 3 * GIB), random.Random(3)
    touches = []
    for i in range(1200):
        size = draw.choice([2, 2, 4, 4, 6, 8]) * MIB
        touches.append((trace.weight("w%d" % i, size), compute_us(size, 8)))
    trace.cycle("pass", 1, touches)
    return trace


def image_model():
    """A U-Net, whose time per weight varies by two orders of magnitude; twice as much computation as copies."""
    trace, draw = Trace("unet", 2 * GIB), random.Random(11)
    touches = []
    for level, (size, count, us) in enumerate([(4, 24, 900), (14, 30, 700), (50, 40, 1500), (14, 30, 700), (4, 24, 900)]):
        for i in range(count):
            weight = trace.weight("level%d.%d" % (level, i), int(size * draw.uniform(0.8, 1.4)) * MIB)
            touches.append((weight, us * draw.uniform(0.5, 1.5)))
    trace.cycle("step", 1, touches)
    return trace


def balanced():
    """A batch large enough that computation takes as long as the copies of what does not fit."""
    trace = llama("balanced", 8 * GIB, 5800)
    return trace


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    traces = [llama("decode", 8 * GIB, 1, 8 * MIB), llama("prefill", 4 * GIB, 16384), diffusion(), speculative(),
              encoder_decoder(), uneven(), pyramid(), tied(), huge(), experts(), llama("tiny-budget", 300 * MIB, 1),
              llama("nearly-fits", int(13.93 * GIB), 1), two_models(), chat(), small_weights(), image_model(), balanced(),
              llama("fused", 5 * GIB, 16, fused=True)]
    for trace in traces:
        trace.write(folder)


main()
