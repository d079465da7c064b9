"""Trains a model twice, untouched and with rungs turned, and compares what came of it."""
import glob
import importlib
import os
import random
import sys

import numpy
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


sys.path.append(os.path.join(HERE, "..", ".."))


def rungs():
    """Imports the probe's parts anew, which a test may change, and gives rungs.py."""
    for name in [name for name in sys.modules if name.split(".")[0] == "inside"]:
        del sys.modules[name]
    part("process").state["orders"] = {}  # none, where gpurun has not started the process
    return part("rungs")


def some(cases, step):
    """Return each step-th of many cases; make stress has them all. The step divides no number of variants, so that each is there."""
    return list(cases)[::1 if os.environ.get("GPURUN_REMEDIES") == "all" else step]


def part(name):
    """Return a part of the hook, whatever its layer."""
    path, = glob.glob(os.path.join(HERE, "..", "..", "inside", "*", name + ".py"))
    return importlib.import_module("inside.%s.%s" % (os.path.basename(os.path.dirname(path)), name))


class AtFirstCall:
    """Turns rungs as the first call of the root begins, as root.py does: it is between the job and Module.__call__."""

    def __init__(self, root, turn, tell=None):
        self.result, plain = None, nn.Module.__call__

        def __call__(module, *args, **kwargs):
            if module is root and self.result is None:
                nn.Module.__call__ = plain
                made = rungs()
                part("attention").asked = kwargs
                self.result = made.apply(root, turn, tell)
            return plain(module, *args, **kwargs)

        nn.Module.__call__ = __call__


class Saved:
    """Counts the bytes that a forward saves for its backward, each storage once, without parameters."""

    __module__ = "torch.testing"  # what an object of a library counts is not looked at

    def __init__(self, model):
        self.own = {p.data_ptr() for p in model.parameters()}
        self.bytes, self.seen = 0, set()
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda x: x)

    def pack(self, tensor):
        if tensor.data_ptr() not in self.seen | self.own:
            self.seen.add(tensor.data_ptr())
            self.bytes += tensor.numel() * tensor.element_size()
        return tensor

    def __enter__(self):
        self.hooks.__enter__()
        return self

    def __exit__(self, *exception):
        self.hooks.__exit__(*exception)


def loss_of(output, step):
    """A loss outside the model."""
    output = output[0] if isinstance(output, tuple) else output
    if not isinstance(output, torch.Tensor):
        output = output["logits"] if "logits" in output else output["last_hidden_state"]
    torch.manual_seed(7000 + step)
    return (output * torch.randn(output.shape[-1])).square().mean()


class Training:
    """What a few steps leave behind."""

    def __init__(self, make, batch, turn=None, steps=3, accumulate=1, wrap=None, between=None, kwargs=None, told=None):
        torch.manual_seed(1)
        random.seed(1)
        numpy.random.seed(1)
        self.model = make()
        self.model.train()
        root = wrap(self.model) if wrap else self.model
        # No AdamW: it makes steps of the same length out of gradients that are rounding errors.
        optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], lr=1e-2, momentum=0.9)
        self.losses, self.gradients, self.noise, self.saved = [], [], [], []
        tell = None if told is None else lambda knob, reason: told.append((knob, reason))
        first = AtFirstCall(root, turn, tell) if turn else None
        for step in range(steps):
            data = [batch(step * accumulate + i) for i in range(accumulate)]
            torch.manual_seed(step)
            for micro in data:
                with Saved(self.model) as saved:
                    loss = loss_of(root(micro, **(kwargs or {})), step) / accumulate
                loss.backward()
                self.saved.append(saved.bytes)
                self.losses.append(loss.detach().clone())
            self.gradients.append([None if p.grad is None else p.grad.clone() for p in self.model.parameters()])
            self.noise.append((torch.rand(3), random.random(), numpy.random.rand()))
            optimizer.step()
            optimizer.zero_grad()
            if between:
                between(root)
        self.result = first.result if first else None

    def state(self):
        return dict(self.model.state_dict(), **{"buffer " + n: b for n, b in self.model.named_buffers()})


def compare(test, one, other, exact=True):
    """Holds two trainings equal: losses, gradients, random numbers, weights and statistics."""
    near = torch.equal if exact else lambda a, b: a.shape == b.shape and (a - b).norm() <= 1e-6 * max(b.norm(), 1e-3)
    for step, (a, b) in enumerate(zip(one.losses, other.losses)):
        test.assertTrue(near(a, b), "loss %d: %r is not %r" % (step, a, b))
    names = [n for n, _ in one.model.named_parameters()]
    for step, (a, b) in enumerate(zip(one.gradients, other.gradients)):
        for name, x, y in zip(names, a, b):
            test.assertEqual(x is None, y is None, name)
            test.assertTrue(x is None or near(x, y), "gradient of %s in step %d" % (name, step))
    for (a, b, c), (x, y, z) in zip(one.noise, other.noise):
        test.assertTrue(torch.equal(a, x), "PyTorch's random numbers")
        test.assertEqual((b, c), (y, z), "Python's and NumPy's random numbers")
    a, b = one.state(), other.state()
    test.assertEqual(list(a), list(b))
    for name in a:
        test.assertTrue(near(a[name].float(), b[name].float()), name)
