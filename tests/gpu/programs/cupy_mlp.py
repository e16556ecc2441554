"""Layers in CuPy, float16: cuBLAS through CuPy's own memory pool, elementwise kernels compiled at run time."""
import cupy
import numpy as np

import common

WIDTH, LAYERS = 4096, 20
weights = [(cupy.asarray(common.values(2 * i, WIDTH, 3 * WIDTH).astype(np.float16)),
            cupy.asarray(common.values(2 * i + 1, 3 * WIDTH, WIDTH).astype(np.float16))) for i in range(LAYERS)]
x = cupy.asarray(common.values(99, 16, WIDTH).astype(np.float16)) * 50
relu = cupy.ElementwiseKernel("T a", "T b", "b = a > T(0) ? a : T(0)", "relu")


def step():
    h = x
    for up, down in weights:
        h = h + relu(h @ up) @ down
        h = h / (cupy.abs(h).max() + cupy.float16(1e-3))
    return lambda: cupy.asnumpy(h)


common.measure("cupy", sum(u.nbytes + d.nbytes for u, d in weights), step, cupy.cuda.Device().synchronize)
