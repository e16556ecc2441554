"""Linear layers, first in order, then now and then out of it; a launch that is refused (OVERSHOT_STALL=error) is made
again. Prints how often that was, and the md5 of the result."""
import sys

import torch

import common

LAYERS, WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 24, 8192
REFUSED = "operation not permitted"

weights = [torch.from_numpy(common.values(i, WIDTH, WIDTH)).half().cuda() for i in range(LAYERS)]
start = torch.from_numpy(common.values(99, 16, WIDTH)).half().cuda()
refused = 0


def layer(x, weight):
    global refused
    while True:
        try:
            return torch.nn.functional.layer_norm(x @ weight, (WIDTH,))
        except RuntimeError as error:
            if REFUSED not in str(error) and "CUBLAS_STATUS" not in str(error):
                raise
            refused += 1


def forward(order):
    x = start
    for index in order:
        x = layer(x, weights[index])
    torch.cuda.synchronize()
    return x


plain = list(range(LAYERS))
for _ in range(16):
    forward(plain)
in_order = refused
for shift in range(1, 6):
    x = forward(plain[shift * 3:] + plain[:shift * 3])
for _ in range(8):
    forward(plain)
print(f"stall: {in_order} refused in order, {refused - in_order} out of it, md5 {common.md5(x.float().cpu().numpy())}")
