"""What a cross entropy in parts costs beside PyTorch's own. Prints JSON: seconds of loss and backward pass in one piece,
in parts, and in parts where each step has another gradient of the loss, so that none is made ahead.

The fastest of some rounds counts; the kinds take turns, so that other processes disturb the ratios as little as possible.
Usage: loss_cost.py FOLDER [ROUNDS [DEVICE]]: FOLDER has inside/.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

ROWS, WORDS = 2048, 32768


def main(folder, rounds="3", device="cpu"):
    sys.path.insert(0, folder)
    import importlib

    importlib.import_module("inside.base.process").state["orders"] = {}
    calls, plain = importlib.import_module("inside.remedies.losscalls"), torch._C._nn.cross_entropy_loss
    calls.turn(None)
    x, y = torch.randn(ROWS, WORDS, device=device).requires_grad_(), torch.randint(WORDS, (ROWS,), device=device)
    kinds, fastest = {"plain": (plain, False), "parts": (calls.state["mine"], False), "again": (calls.state["mine"], True)}, {}
    for i in range(int(rounds) + 2):
        for kind, (function, changes) in kinds.items():
            for _ in range(1 if changes else 2):  # the second one expects the gradient of the first
                torch._C._nn.cross_entropy_loss, x.grad = function, None
                began = time.perf_counter()
                (F.cross_entropy(x, y) * (3 + i if changes else 1)).backward()
                x.grad[0, 0].item()  # on a GPU, the end of it
            fastest[kind] = min(fastest.get(kind, 1e9), time.perf_counter() - began)
    print(json.dumps(fastest))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
