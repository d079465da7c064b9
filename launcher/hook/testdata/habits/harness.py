"""What the habits have in common: a small model, a loop, and the text of what they leave."""
import array
import collections
import hashlib
import itertools
import random
import types

import memory
import numpy
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, CLASSES = 8, 4
options = {"block": False, "rows": 4}


def habit(made=None, **facts):
    """Registers a class, which has a method change(x), or a function that trains.

    prints: a pass that is done again prints again. compiled: linear() may not be another function.
    newer: needs PyTorch 2. handles: the job handles the error itself. draws: parts of a batch draw other random numbers
    for its rows than the whole.
    """
    def register(made):
        made.habit, made.once = True, isinstance(made, types.FunctionType)
        for name in ("prints", "compiled", "newer", "handles", "draws"):
            setattr(made, name, facts.get(name, False))
        return made

    return register(made) if made is not None else register


class Habit:
    """What a habit adds to the model, or to each of its blocks."""

    def setup(self):
        pass

    def change(self, x):
        return x


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.setup()

    def forward(self, x):
        return x + self.b(torch.tanh(self.a(self.change(self.norm(x)))))


class PlainBlock(Habit, Block):
    pass


class Root(nn.Module):
    def __init__(self, block=PlainBlock):
        super().__init__()
        self.a, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.setup()

    def forward(self, x):
        x = self.change(self.a(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Net(Habit, Root):
    """The model without a habit."""


def net(kind):
    """Return a model with a habit in its forward, or in that of its blocks."""
    bases, place = ((kind, Block), "Block") if options["block"] else ((kind, Root), "")
    made = type(kind.__name__ + place, bases, {"__module__": kind.__module__})
    return Net(made) if options["block"] else made()


def batches(steps=5):
    rows = options["rows"]
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        yield torch.randn(rows, WIDTH, generator=generator), torch.randint(CLASSES, (rows,), generator=generator)


def step(loss):
    """Print the loss of a step that has ended."""
    print("loss", float(loss).hex(), flush=True)
    memory.mark()


def optimizer(model, lr=0.1):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)


def train(model, loss_of=F.cross_entropy, data=None):
    steps = optimizer(model)
    for x, y in data or batches():
        loss = loss_of(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model


def of(made):
    """Return a function that trains with a habit, and returns what is left."""
    if isinstance(made, types.FunctionType):
        return made

    def run():
        model = train(net(made))
        return model, made.leaves() if hasattr(made, "leaves") else None

    return run


def text(value, name="", depth=0, seen=None):
    """Yield lines that describe all that is in a value."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        value = value.detach()
        numbers = value.to(torch.float64) if value.dtype != torch.bool else value.to(torch.uint8).to(torch.float64)
        yield "tensor %s %s %s %s #%s" % (name, tuple(value.shape), float(numbers.sum()).hex(), float(numbers.abs().sum()).hex(), digest(value.contiguous().numpy().tobytes()))
    elif isinstance(value, float):
        yield "number %s %s" % (name, value.hex())
    elif isinstance(value, (int, str, bytes, bytearray, array.array, type(None), itertools.count, torch.dtype, torch.Size)):
        yield "value %s %r" % (name, value)
    elif id(value) in seen or depth > 14:
        yield "seen %s" % name
    elif isinstance(value, torch.Generator):
        yield "generator %s =%s" % (name, digest(value.get_state().numpy().tobytes()))
    elif isinstance(value, random.Random):
        yield "generator %s =%s" % (name, digest(repr(value.getstate()).encode()))
    elif isinstance(value, numpy.ndarray) and value.dtype != object:
        yield from text(torch.from_numpy(value.copy()), name, depth, seen)
    elif isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        state = value.bit_generator.state if isinstance(value, numpy.random.Generator) else value.get_state(legacy=False)
        yield "generator %s =%s" % (name, digest(repr(sorted(state["state"].items(), key=str)).encode() + (state["state"]["key"].tobytes() if "key" in state["state"] else b"")))
    else:
        seen[id(value)] = value
        if isinstance(value, nn.Module):
            yield from text(dict(value.state_dict(keep_vars=True)), name + ".state", depth + 1, seen)
            yield from text({"gradients": [p.grad for p in value.parameters()], "buffers": dict(value.named_buffers())}, name, depth + 1, seen)
            for label, module in value.named_modules():
                yield from text({k: v for k, v in vars(module).items() if k not in vars(EMPTY) and not isinstance(v, nn.Module)}, "%s.%s" % (name, label), depth + 1, seen)
        elif isinstance(value, (dict, collections.abc.Mapping)):
            for key, each in value.items():
                yield from text(each, "%s.%s" % (name, key if isinstance(key, (str, int)) else type(key).__name__), depth + 1, seen)
            yield "size %s %d" % (name, len(value))
        elif isinstance(value, (list, tuple, set, collections.deque, numpy.ndarray)):
            each = list(value)
            for i, one in enumerate(each):
                yield from text(one, "%s.%d" % (name, i), depth + 1, seen)
            yield "size %s %d" % (name, len(each))
        elif not callable(value) or hasattr(value, "__dict__") and not isinstance(value, (types.FunctionType, types.MethodType, type)):
            slots = {slot: getattr(value, slot, None) for slot in getattr(type(value), "__slots__", ()) if not slot.startswith("__")}
            yield from text(dict(getattr(value, "__dict__", {}), **slots), name, depth + 1, seen)


EMPTY = nn.Module()


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]
