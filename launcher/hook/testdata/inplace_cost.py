"""What the guard that repeats a step costs in a step in which nothing fails.

Prints JSON: the CPU time of it in microseconds, for a model of 300 parameters and one with as many
that has a counter, dropout and BatchNorm. Rounds with the guard and without take turns; the model
computes next to nothing, and the fastest tenth of all steps of each kind counts, so that other
processes disturb the difference as little as possible.
Usage: inplace_cost.py FOLDER
"""
import json
import statistics
import sys
import time

import torch
from torch import nn

from inplace_property import load

PARAMETERS, STEPS, ROUNDS = 300, 100, 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(PARAMETERS // 2))

    def forward(self, x):
        return self.layers[0](x)


class Changing(Net):
    """Its forward changes buffers and attributes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.1)) for _ in range(PARAMETERS // 4))
        self.calls = 0
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x):
        self.calls += 1
        self.average.mul_(0.9)
        return super().forward(x)


def steps(model, n):
    x, parameters = torch.ones(4, 2), list(model.parameters())
    times = []
    for _ in range(n):
        for p in parameters[:4]:
            p.grad = None
        began = time.thread_time_ns()
        model(x).sum().backward()
        times.append((time.thread_time_ns() - began) / 1e3)
    return times


def cost(guard, kind):
    """Return what the guard adds to a step, in microseconds."""
    plain, guarded = [], []
    for _ in range(ROUNDS):
        model = kind().train()
        steps(model, 20)
        plain += steps(model, STEPS)
        model = type("Guarded", (kind,), {})().train()
        off = guard(model)
        steps(model, 270)  # around the first calls, the 64th and the 256th all is compared
        guarded += steps(model, STEPS)
        off()
    return statistics.quantiles(guarded, n=10)[0] - statistics.quantiles(plain, n=10)[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    guard = load(sys.argv[1])
    print(json.dumps({"plain": cost(guard, Net), "changing": cost(guard, Changing)}))
