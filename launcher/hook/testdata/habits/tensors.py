"""Tensors that a forward changes beside its output, and models that are made as they run."""
import collections
import copy

import numpy
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from harness import CLASSES, WIDTH, Habit, Net, batches, habit, optimizer, step, train
from torch import nn


def statistics(x):
    return x.detach().mean(0), x.detach().std(0, unbiased=False) + 0.1


@habit
class ActNormByABuffer(Habit):
    def setup(self):
        self.shift, self.log_scale = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))

    def change(self, x):
        if self.initialised.item() == 0:
            mean, deviation = statistics(x)
            self.shift.data.copy_(-mean)
            self.log_scale.data.copy_(-deviation.log())
            self.initialised.fill_(1)
        return (x + self.shift) * self.log_scale.exp()


@habit
class ActNormByAFlag(Habit):
    def setup(self):
        self.shift, self.log_scale = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.initialised = False

    def change(self, x):
        if not self.initialised:
            mean, deviation = statistics(x)
            with torch.no_grad():
                self.shift.copy_(-mean)
                self.log_scale.copy_(-deviation.log())
            self.initialised = True
        return (x + self.shift) * self.log_scale.exp()


@habit
class ActNormByData(Habit):
    def setup(self):
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def change(self, x):
        if not self.shift.data.any():
            self.shift.data = -statistics(x)[0]
        return x + self.shift


class Momentum(Habit):
    def setup(self):
        self.slow = copy.deepcopy(self.a)
        for p in self.slow.parameters():
            p.requires_grad_(False)

    def change(self, x):
        self.update()
        with torch.no_grad():
            key = self.slow(x)
        return x + key


@habit
class MomentumEncoderByData(Momentum):
    @torch.no_grad()
    def update(self):
        for fast, slow in zip(self.a.parameters(), self.slow.parameters()):
            slow.data = slow.data * 0.9 + fast.data * 0.1


@habit
class MomentumEncoderByDataInPlace(Momentum):
    def update(self):
        for fast, slow in zip(self.a.parameters(), self.slow.parameters()):
            slow.data.mul_(0.9).add_(fast.data, alpha=0.1)


@habit
class MomentumEncoderByCopy(Momentum):
    @torch.no_grad()
    def update(self):
        for fast, slow in zip(self.a.parameters(), self.slow.parameters()):
            slow.copy_(slow * 0.9 + fast * 0.1)


@habit
class MomentumEncoderReplaced(Momentum):
    def update(self):
        self.slow.weight = nn.Parameter(self.slow.weight.detach() * 0.9 + self.a.weight.detach() * 0.1, requires_grad=False)


@habit
class MomentumEncoderByStates(Momentum):
    def update(self):
        fast, slow = self.a.state_dict(), self.slow.state_dict()
        self.slow.load_state_dict({name: slow[name] * 0.9 + fast[name] * 0.1 for name in slow})


@habit
class MomentumEncoderOutside(Momentum):
    """The second encoder is no submodule."""

    def setup(self):
        super().setup()
        slow = self.slow
        del self.slow
        self.__dict__["slow"] = slow

    update = MomentumEncoderByDataInPlace.update


@habit
class QueueInABuffer(Habit):
    def setup(self):
        self.register_buffer("queue", torch.zeros(6, WIDTH))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def change(self, x):
        mean = self.queue.clone().mean(0)
        with torch.no_grad():
            at = int(self.at)
            self.queue[at] = x.detach()[0]
            self.at[0] = (at + 1) % 6
        return x + mean


@habit
class QueueByData(Habit):
    def setup(self):
        self.register_buffer("queue", torch.zeros(WIDTH, 5))

    def change(self, x):
        self.queue.data = torch.cat([self.queue.data[:, 1:], x.detach()[:1].t()], 1)
        return x + self.queue.mean(1)


@habit
class QueueInNumpy(Habit):
    def setup(self):
        self.queue = torch.zeros(4, WIDTH).numpy()

    def change(self, x):
        self.queue[:-1] = self.queue[1:].copy()
        self.queue[-1] = x.detach()[0].numpy()
        return x + torch.from_numpy(self.queue.mean(0))


@habit
class RunningMean(Habit):
    def setup(self):
        self.register_buffer("average", torch.zeros(WIDTH))

    def change(self, x):
        with torch.no_grad():
            self.average.mul_(0.9).add_(x.detach().mean(0) * 0.1)
        return x + self.average.clone()


@habit
class RunningMeanByData(Habit):
    def setup(self):
        self.register_buffer("average", torch.zeros(WIDTH))

    def change(self, x):
        self.average.data.lerp_(x.detach().mean(0), 0.1)
        return x + self.average


@habit
class RunningMeanReplaced(Habit):
    def setup(self):
        self.register_buffer("average", torch.zeros(WIDTH))

    def change(self, x):
        self.average = self.average * 0.9 + x.detach().mean(0) * 0.1
        return x + self.average


@habit
class RunningMeanThroughNumpy(Habit):
    def setup(self):
        self.register_buffer("average", torch.zeros(WIDTH))
        self.numbers = self.average.numpy()

    def change(self, x):
        self.numbers *= 0.9
        self.numbers += x.detach().mean(0).numpy() * numpy.float32(0.1)
        return x + self.average.clone()


@habit
class BufferOfALaterCall(Habit):
    def change(self, x):
        if not hasattr(self, "table"):
            self.register_buffer("table", torch.rand(WIDTH), persistent=False)
        self.table.add_(0.1)
        return x + self.table.clone()


@habit
class LazyLayer(Habit):
    def setup(self):
        self.lazy = nn.LazyLinear(WIDTH)

    def change(self, x):
        return x + self.lazy(x)


@habit
class LayerMadeInTheForward(Habit):
    def setup(self):
        self.calls = 0

    def change(self, x):
        self.calls += 1
        if self.calls == 2:
            self.extra = nn.Linear(WIDTH, WIDTH)
        return self.extra(x) if self.calls >= 2 else x


@habit
class BatchNorm(Habit):
    def setup(self):
        self.bn = nn.BatchNorm1d(WIDTH)

    def change(self, x):
        return self.bn(x) if len(x) > 1 else x


@habit
class BatchNormTwice(Habit):
    def setup(self):
        self.bn = nn.BatchNorm1d(WIDTH)

    def change(self, x):
        return self.bn(x) + self.bn(x * 2) if len(x) > 1 else x


@habit
class BatchNormWhoseStatisticsAreRead(Habit):
    def setup(self):
        self.bn = nn.BatchNorm1d(WIDTH, momentum=None)

    def change(self, x):
        return x if len(x) == 1 else self.bn(x) + self.bn.running_mean.clone() * (1 + int(self.bn.num_batches_tracked))


@habit
class SpectralNorm(Habit):
    def setup(self):
        self.a = nn.utils.spectral_norm(self.a)


@habit
class SpectralParametrization(Habit):
    def setup(self):
        nn.utils.parametrizations.spectral_norm(self.a)


@habit
class WeightNorm(Habit):
    def setup(self):
        self.a = nn.utils.weight_norm(self.a)


class Counting(nn.Module):
    calls = 0

    def forward(self, weight):
        self.calls += 1
        return torch.tanh(weight) * (1 + 0.01 * self.calls)


@habit
class ParametrizationThatCounts(Habit):
    def setup(self):
        nn.utils.parametrize.register_parametrization(self.a, "weight", Counting())


@habit
class ClampedParameter(Habit):
    def setup(self):
        self.limit = nn.Parameter(torch.ones(1))

    def change(self, x):
        with torch.no_grad():
            self.limit.clamp_(0.5, 0.9)
        return x * self.limit


@habit
class NormalisedWeights(Habit):
    def change(self, x):
        self.a.weight.data = F.normalize(self.a.weight.data, dim=1) * 1.1
        return x


@habit
class HiddenState(Habit):
    """An RNN whose state is carried on from batch to batch."""

    def setup(self):
        self.cell, self.hidden = nn.GRUCell(WIDTH, WIDTH), None

    def change(self, x):
        if self.hidden is None or self.hidden.shape[0] != x.shape[0]:
            self.hidden = x.new_zeros(x.shape[0], WIDTH)
        self.hidden = self.cell(x, self.hidden.detach())
        return x + self.hidden


@habit
class KeysAndValues(Habit):
    """A memory of keys and values that grows, up to a length."""

    def setup(self):
        self.cache = None

    def change(self, x):
        keys = x.detach() if self.cache is None else torch.cat([self.cache[0], x.detach()])[-8:]
        self.cache = keys, torch.tanh(keys)
        return x + torch.softmax(x @ self.cache[0].t(), 1) @ self.cache[1]


@habit
class CodeBook(Habit):
    def setup(self):
        for name, value in (("book", torch.eye(WIDTH)), ("size", torch.ones(WIDTH)), ("started", torch.zeros(1))):
            self.register_buffer(name, value)

    def change(self, x):
        if not self.started:
            self.book.data.copy_(self.book + x.detach()[0])
            self.started.data.copy_(torch.ones(1))
        near = torch.cdist(x.detach(), self.book).argmin(1)
        self.size.data.mul_(0.9).add_(F.one_hot(near, WIDTH).sum(0).float() * 0.1)
        self.book.data.lerp_(x.detach().mean(0).expand_as(self.book), 0.1)
        return x + 0.1 * (self.book[near] + self.size).detach()


@habit
class Observer(Habit):
    """As quantisation does: the range that was seen."""

    def setup(self):
        self.low, self.high = 0.0, 0.0

    def change(self, x):
        self.low, self.high = min(self.low, float(x.detach().min())), max(self.high, float(x.detach().max()))
        return x / (1 + 0.1 * (self.high - self.low))


@habit
class Centring(Habit):
    """As DINO does, in a tensor of the class."""

    center = torch.zeros(WIDTH)

    def change(self, x):
        y = x - Centring.center
        Centring.center = Centring.center * 0.9 + x.detach().mean(0) * 0.1
        return y


@habit
class InPlaceOnTheInput(Habit):
    def change(self, x):
        y = x.clone()
        y[:, :2] *= 2
        return F.relu(y + 0.1, inplace=True)


@habit
class OwnCheckpoint(Habit):
    def change(self, x):
        return x + torch.utils.checkpoint.checkpoint(lambda y: torch.tanh(self.b(y)) if hasattr(self, "b") else torch.tanh(y), x, use_reentrant=False)


@habit
class HookThatCollects(Habit):
    def setup(self):
        self.features = []
        self.a.register_forward_hook(lambda module, args, output: self.features.append(float(output.detach().sum())))

    def change(self, x):
        return x * (1 + 0.01 * len(self.features))


@habit
class HookThatCounts(Habit):
    def setup(self):
        self.calls = collections.Counter()
        self.a.register_forward_pre_hook(lambda module, args: self.calls.update(["before"]))
        self.a.register_forward_hook(lambda module, args, output: output * (1 + 0.01 * self.calls["before"]))


@habit
class GradientHookOfATensor(Habit):
    def setup(self):
        self.seen = []

    def change(self, x):
        if x.requires_grad:
            x.register_hook(lambda g: self.seen.append(float(g.sum())))
        return x * (1 + 0.01 * len(self.seen))


@habit
class GradientHookOfAParameter(Habit):
    def setup(self):
        self.calls = 0
        self.a.weight.register_hook(self.count)

    def count(self, gradient):
        self.calls += 1
        return gradient * (1 + 0.1 * (self.calls % 3))


@habit
class HookOnAGraphNode(Habit):
    def setup(self):
        self.seen = []

    def change(self, x):
        y = x * 1.5
        if y.grad_fn is not None:
            y.grad_fn.register_hook(lambda *gradients: self.seen.append(len(self.seen)))
        return y


@habit
class FullBackwardHook(Habit):
    def setup(self):
        self.norms = []
        self.a.register_full_backward_hook(lambda module, given, got: self.norms.append(float(got[0].norm())))


@habit
class EnergyGradient(Habit):
    def change(self, x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            g, = torch.autograd.grad((self.a(y) ** 2).sum(), y)
        return x + 0.1 * g


@habit
class OutputThatIsKept(Habit):
    def change(self, x):
        self.kept = x
        return x


class Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stack):
        ctx.stack = stack
        stack.append(x.detach() + 1)
        return x * stack[-1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.stack.pop(), None


@habit
class StackThatBackwardEmpties(Habit):
    def setup(self):
        self.stack = []

    def change(self, x):
        return Stacked.apply(x, self.stack)


class Ticks(torch.autograd.Function):
    passes = 0

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Ticks.passes += 1
        return gradient * (1 + 0.05 * (Ticks.passes % 5))


@habit
class CounterInBackward(Habit):
    def change(self, x):
        return Ticks.apply(x)

    def leaves():
        return Ticks.passes


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(WIDTH, WIDTH, 2, dropout=0.1), nn.Linear(WIDTH, CLASSES)

    def forward(self, x, state):
        y, state = self.rnn(x.unsqueeze(1), state)
        return self.head(y.squeeze(1)), state


@habit
def truncated_bptt():
    model, state = Encoder(), None
    steps = optimizer(model)
    for x, y in batches():
        output, state = model(x, state)
        state = tuple(each.detach() for each in state)
        loss = F.cross_entropy(output, y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        step(loss)
    return model, state


class Reused(nn.Module):
    """One block, called several times."""

    def __init__(self):
        super().__init__()
        self.block, self.head = Net().blocks[0], nn.Linear(WIDTH, CLASSES)
        self.head.weight = nn.Parameter(self.head.weight.detach().clone())
        self.depth = 0

    def forward(self, x):
        self.depth = self.depth % 3 + 1
        for _ in range(self.depth):
            x = self.block(x)
        return self.head(x)


@habit
def growing_depth():
    return train(Reused())


class Traced(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.b(torch.tanh(self.a(x))) * (1 + 0.1 * self.calls)


@habit(compiled=True)
def scripted():
    return train(torch.jit.script(Traced()))


@habit(compiled=True, newer=True)
def compiled():
    model = Traced()
    train(torch.compile(model, backend="eager"))
    return model
