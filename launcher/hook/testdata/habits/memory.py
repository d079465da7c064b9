"""Counts the calls of linear() and of its backward pass, and lets memory run out at some of them: the
allocator refuses what no machine has."""
import torch
import torch.nn.functional as F


class Fail:
    __module__ = "torch.nn.functional"  # what an object of a library counts is not restored before a repeat

    def __init__(self):
        self.at, self.count, self.marks, self.hits = (), {"forward": 0, "backward": 0}, [], 0

    def __call__(self, where):
        self.count[where] += 1
        if (where, self.count[where]) in self.at:
            self.hits += 1
            torch.empty(1 << 60, dtype=torch.uint8)


fail = Fail()


class Falls(torch.autograd.Function):
    __module__ = "torch.nn.functional"

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        fail("backward")
        return gradient.clone()


def mark():
    """Note where a step ends."""
    fail.marks.append(dict(fail.count))


def arm(at, backward):
    """Count, and have memory run out at these places. Without backward nothing is added to the graph."""
    fail.at, plain = at, F.linear

    def linear(input, weight, bias=None):
        fail("forward")
        output = plain(input, weight, bias)
        return Falls.apply(output) if backward and torch.is_grad_enabled() else output

    linear.__module__ = plain.__module__
    F.linear = linear
