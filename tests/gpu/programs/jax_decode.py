"""Jitted layers in JAX, bf16, many passes, each waited for: as a server does that has compiled its function.

LAYERS (default 16), N passes that are timed (60) after WARM (100); WEIGHTS=converted has the device make bf16 of float32,
WEIGHTS=copied (default) copies bf16 to it. XLA tries several ways to multiply and takes the fastest, so two runs may
differ in their last bits, without overshot as well: XLA_FLAGS=--xla_gpu_autotune_level=0 has it take the same always."""
import os
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import common

LAYERS, WIDTH = int(os.environ.get("LAYERS", "16")), 4096
converted = os.environ.get("WEIGHTS", "copied") == "converted"


def weight(index, *shape):
    values = common.values(index, *shape)
    return jnp.asarray(values, jnp.bfloat16) if converted else jax.device_put(values.astype(ml_dtypes.bfloat16))


params = [(weight(2 * i, WIDTH, 3 * WIDTH), weight(2 * i + 1, 3 * WIDTH, WIDTH)) for i in range(LAYERS)]
jax.block_until_ready(params)


@jax.jit
def forward(params, x):
    for up, down in params:
        x = x + jax.nn.silu(x @ up) @ down
        x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5).astype(x.dtype)
    return x


x = jnp.asarray(common.values(99, 8, WIDTH) * 50, jnp.bfloat16)
last = [None]


def step():
    last[0] = forward(params, x)
    return lambda: np.asarray(last[0], np.float32)


begin = time.time()
common.measure("jax", sum(a.nbytes + b.nbytes for a, b in params), step, lambda: last[0].block_until_ready(),
               rounds=int(os.environ.get("N", "60")), warm=int(os.environ.get("WARM", "100")))
print(f"jax: {time.time() - begin:.1f} s from the first pass on", flush=True)
