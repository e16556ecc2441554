"""What the GPU test programs share: weights from a fixed seed, the md5 of an output, and how a figure is printed."""
import hashlib
import time

import numpy as np

_noise = np.random.default_rng(1).standard_normal(1 << 22, dtype=np.float32) * 0.02


def values(index, *shape):
    """float32 values of a shape, different for every index; cheap: one noise, rolled and repeated."""
    count = int(np.prod(shape))
    rolled = np.roll(_noise, index * 977)
    return np.resize(rolled, count).reshape(shape)


def build(kind, config, torch):
    """A model of transformers with values of our own: drawing random ones first would take a minute."""
    def leave_empty(self, *_, **__):
        return None

    for parent in kind.__mro__:
        if "_init_weights" in vars(parent):
            parent._init_weights = leave_empty
    for layer in (torch.nn.Linear, torch.nn.Embedding):
        layer.reset_parameters = leave_empty
    return fill(kind(config), torch)


def fill(model, torch):
    """Gives every parameter of a model on the CPU values of its own; vectors become 1."""
    with torch.no_grad():
        for index, (_, parameter) in enumerate(model.named_parameters()):
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.copy_(torch.from_numpy(values(index, *parameter.shape)))
    return model.eval()


def md5(array):
    return hashlib.md5(np.ascontiguousarray(array, np.float32).tobytes()).hexdigest()


def measure(name, weight_bytes, step, wait, rounds=20, warm=16):
    """Runs step() and prints the first pass, the mean of `rounds` later ones and the md5 of the last result."""
    start = time.time()
    step()
    wait()
    first = time.time() - start
    for _ in range(warm):
        step()
        wait()
    start = time.time()
    for _ in range(rounds):
        result = step()
    wait()
    seconds = (time.time() - start) / rounds
    print(f"{name}: {weight_bytes * 1e-9:.2f} GB of weights, first pass {first * 1e3:.1f} ms, pass {seconds * 1e3:.2f} ms, "
          f"{weight_bytes / seconds * 1e-9:.2f} GB/s of weights, md5 {md5(result())}", flush=True)
