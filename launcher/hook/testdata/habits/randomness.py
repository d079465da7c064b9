"""Random numbers, from whatever draws them."""
import random
import secrets
import zlib

import numpy
import torch
import torch.nn.functional as F
from counters import scaled
from harness import Habit, habit
from torch import nn


@habit(draws=True)
class Dropout(Habit):
    def setup(self):
        self.drop = nn.Dropout(0.3)

    def change(self, x):
        return self.drop(x)


@habit
class NoiseOfTorch(Habit):
    def change(self, x):
        return x + 0.1 * torch.randn_like(x)


@habit
class Gumbel(Habit):
    def change(self, x):
        return x * F.gumbel_softmax(x, tau=1.0)


@habit
class PythonRandom(Habit):
    def change(self, x):
        return x * (1 + random.random())


@habit
class LegacyNumpy(Habit):
    def change(self, x):
        return x * (1 + float(numpy.random.rand())) + float(numpy.random.randn())


@habit
class OwnGenerator(Habit):
    def setup(self):
        self.own = torch.Generator().manual_seed(3)

    def change(self, x):
        return x * torch.rand(x.shape, generator=self.own)


GENERATOR = torch.Generator().manual_seed(4)


@habit
class GlobalGenerator(Habit):
    def change(self, x):
        return x * torch.rand(x.shape, generator=GENERATOR)

    def leaves():
        return GENERATOR


@habit
class OwnPythonRandom(Habit):
    def setup(self):
        self.own = random.Random(4)

    def change(self, x):
        return x * (1 + self.own.random())


@habit
class OwnNumpy(Habit):
    def setup(self):
        self.own, self.old = numpy.random.default_rng(4), numpy.random.RandomState(4)

    def change(self, x):
        return x * (1 + float(self.own.random()) + float(self.old.rand()))


@habit
class MethodOfAGenerator(Habit):
    def setup(self):
        self.draw, self.other = random.Random(5).random, numpy.random.default_rng(6).random

    def change(self, x):
        return x * (1 + self.draw() + self.other())


DRAWN = numpy.random.default_rng(9)


@habit
class GlobalNumpyGenerator(Habit):
    def change(self, x):
        return x * (1 + DRAWN.random())

    def leaves():
        return DRAWN


class Linear(random.Random):
    """A generator written in Python."""

    def __init__(self):
        self.state = 7
        super().__init__(1)

    def random(self):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return self.state / 2**31


@habit
class GeneratorOfTheJobs(Habit):
    def setup(self):
        self.own = Linear()

    def change(self, x):
        return x * (1 + self.own.random())


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * (1 + random.random())

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.5


@habit
class PythonRandomInAFunctionsForward(Habit):
    def change(self, x):
        return Noisy.apply(x)


class Rounding(torch.autograd.Function):
    """Rounds gradients at random, as quantisation does."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + random.random())


@habit
class PythonRandomInAFunctionsBackward(Habit):
    def change(self, x):
        return Rounding.apply(x)


class NumpyRounding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + float(numpy.random.rand()))


@habit
class NumpyInAFunctionsBackward(Habit):
    def change(self, x):
        return NumpyRounding.apply(x)


class TorchRounding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + torch.rand_like(gradient))


@habit
class TorchInAFunctionsBackward(Habit):
    def change(self, x):
        return TorchRounding.apply(x)


@habit
class OwnGeneratorInAHookOfBackward(Habit):
    def setup(self):
        self.own = random.Random(11)
        self.a.weight.register_hook(lambda gradient: gradient * (1 + self.own.random()))


@habit
class StochasticDepth(Habit):
    def change(self, x):
        return x if random.random() < 0.5 else scaled(x, 3)


@habit
class LayerDrop(Habit):
    def change(self, x):
        return self.a(x) if torch.rand(()) < 0.5 else x


@habit
class StochasticDepthBySchedule(Habit):
    def setup(self):
        self.drop = 0.0

    def change(self, x):
        self.drop += 0.1
        return x if self.drop > 0.25 and torch.rand(()) < self.drop else x * 1.1


@habit
class LaterCallsDraw(Habit):
    def setup(self):
        self.calls = 0

    def change(self, x):
        self.calls += 1
        return x * (1 + float(numpy.random.rand()) + random.random()) if self.calls > 3 else x


@habit
class SeedsInTheForward(Habit):
    def setup(self):
        self.calls = 0

    def change(self, x):
        self.calls += 1
        torch.manual_seed(zlib.crc32(b"%d" % self.calls))
        return x + 0.1 * torch.rand(x.shape)


@habit
class DrawsOnceAndKeepsIt(Habit):
    def change(self, x):
        if not hasattr(self, "matrix"):
            self.matrix = torch.randn(x.shape[-1], x.shape[-1])
        return x @ self.matrix


@habit
class OperatingSystemsRandom(Habit):
    """Draws what does not count."""

    def change(self, x):
        self.token = len(secrets.token_bytes(4))
        return x * self.token


@habit
class Mixup(Habit):
    def change(self, x):
        share = numpy.random.beta(0.4, 0.4)
        return x * share + x[torch.randperm(len(x))] * (1 - share)
