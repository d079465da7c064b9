"""Small models with random habits, in which memory runs out at a random place: a step that is
repeated in place must leave what an undisturbed one leaves, or the job's own error is raised.

Prints a line of JSON for each difference, and one with the counts.
Usage: inplace_property.py FOLDER SEED CASES [HABIT]
"""
import collections
import contextlib
import copy
import functools
import itertools
import json
import math
import random
import sys
import types
import warnings

import torch
import torch.nn.functional as F
from torch import nn

try:
    import numpy
except ImportError:
    numpy = None

WIDTH = 6
STEPS = 4
WORDS = "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1048576 bytes. Error code 12 (Cannot allocate memory)"
PER_MODEL = 5

# Where memory may run out: at calls of functions, in the backward pass of each, or, where
# PyTorch's dispatch mode works, at operations.


class Fault:
    """Counts the places that a run passes, and fails at one of them."""

    __module__ = "torch.testing"  # what an object of a library counts is not looked at

    def __init__(self, at=0):
        self.at, self.passed, self.fired = at, 0, False

    def step(self):
        self.passed += 1
        if self.passed == self.at:
            self.fired = True
            raise RuntimeError(WORDS)


class Point(torch.autograd.Function):
    """Changes nothing; memory may run out in its forward and in its backward."""

    __module__ = "torch.testing"
    fault = Fault()

    @staticmethod
    def forward(ctx, x):
        Point.fault.step()
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        Point.fault.step()
        return gradient.clone()


point = Point.apply


def operations(fault):
    """Return a context in which each operation of PyTorch is such a place."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls):
            return False

        def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
            fault.step()
            return function(*args, **(kwargs or {}))

    return Operations()


# PyTorch writes a batch's statistics after all that needs memory: there it runs out before only.
PATCHED = [(F, name, True) for name in ("linear", "relu", "layer_norm", "dropout", "normalize", "mse_loss")] + [(torch, "batch_norm", False)]


@contextlib.contextmanager
def patched(fault):
    """Memory runs out before or after functions of PyTorch."""
    plain = [(owner, name, getattr(owner, name)) for owner, name, _ in PATCHED]

    def around(function, after):
        @functools.wraps(function)
        def call(*args, **kwargs):
            fault.step()
            output = function(*args, **kwargs)
            if after:
                fault.step()
            return output

        return call

    for (owner, name, function), (_, _, after) in zip(plain, PATCHED):
        setattr(owner, name, around(function, after))
    try:
        yield
    finally:
        for owner, name, function in plain:
            setattr(owner, name, function)


# Habits of models: what their forward changes or draws beside its output.

HABITS = {}
COUNTER = 0
SEEN = []
TABLE = {"calls": 0, "each": {}}
DRAW = torch.Generator()


def habit(setup=None, random_numbers=False):
    def register(run):
        HABITS[run.__name__] = (setup or (lambda block: None), run)
        return run

    return register


def sets(**attributes):
    def setup(block):
        for name, make in attributes.items():
            setattr(block, name, make())

    return setup


def buffers(**made):
    def setup(block):
        for name, make in made.items():
            block.register_buffer(name, make())

    return setup


def zeros():
    return torch.zeros(WIDTH)


def ones():
    return torch.ones(WIDTH)


@habit()
def nothing(self, x):
    return x


@habit(sets(calls=int))
def counter(self, x):
    self.calls += 1
    return x * (1 + 0.01 * self.calls)


@habit(sets(seen=list))
def history_in_a_list(self, x):
    self.seen.append(float(x.detach().mean()))
    return x * (1 + 0.01 * len(self.seen))


@habit(sets(recent=lambda: collections.deque(maxlen=2), calls=int))
def history_in_a_deque(self, x):
    self.calls += 1
    self.recent.append(self.calls)
    return x * (1 + 0.01 * sum(self.recent))


@habit(sets(cache=dict, calls=int))
def cache_by_shape(self, x):
    if x.shape not in self.cache:
        self.cache[x.shape] = torch.ones(x.shape[0], 1) * (1 + 0.1 * len(self.cache))
    return x * self.cache[x.shape]


@habit(sets(cache=collections.OrderedDict, calls=int))
def cache_of_the_latest(self, x):
    self.calls += 1
    key = self.calls % 3
    self.cache[key] = self.cache.get(key, 0) + 1
    self.cache.move_to_end(key)
    while len(self.cache) > 2:
        self.cache.popitem(last=False)
    return x * (1 + 0.01 * sum((i + 1) * v for i, v in enumerate(self.cache.values())))


@habit()
def python_random(self, x):
    return x * (1 + random.random())


@habit(sets(calls=int))
def python_random_later(self, x):
    self.calls += 1
    return x * (1 + random.random()) if self.calls > 2 else x


@habit(sets(own=lambda: random.Random(4)))
def own_python_random(self, x):
    return x * (1 + self.own.random())


@habit()
def numpy_random(self, x):
    return x * (1 + float(numpy.random.rand())) + float(numpy.random.randn()) if numpy else x


@habit(sets(calls=int))
def numpy_random_later(self, x):
    self.calls += 1
    return x * (1 + float(numpy.random.rand())) if numpy and self.calls > 3 else x


@habit(sets(own=lambda: numpy and numpy.random.default_rng(4), old=lambda: numpy and numpy.random.RandomState(4)))
def own_numpy_random(self, x):
    return x * (1 + float(self.own.random()) + float(self.old.rand())) if numpy else x


@habit(sets(own=lambda: torch.Generator().manual_seed(3)))
def own_generator(self, x):
    return x * torch.rand(x.shape, generator=self.own)


@habit(sets(own=lambda: torch.Generator().manual_seed(3), calls=int))
def own_generator_later(self, x):
    self.calls += 1
    return x * torch.rand(x.shape, generator=self.own) if self.calls > 3 else x


@habit()
def global_generator(self, x):
    return x * torch.rand(x.shape, generator=DRAW)


@habit()
def torch_random(self, x):
    return x + 0.1 * torch.randn_like(x)


@habit(sets(drop=lambda: nn.Dropout(0.3)))
def dropout(self, x):
    return self.drop(x)


@habit()
def gumbel_noise(self, x):
    return x * F.gumbel_softmax(x, tau=1.0, hard=False)


@habit()
def stochastic_depth(self, x):
    return x if random.random() < 0.5 else x * 1.5


@habit(sets(drop=lambda: 0.0))
def stochastic_depth_by_schedule(self, x):
    self.drop += 0.1
    return x if self.drop > 0.35 and torch.rand(()) < self.drop else x * 1.1


@habit(buffers(average=zeros))
def moving_average(self, x):
    with torch.no_grad():
        self.average.mul_(0.9).add_(x.detach().mean(0) * 0.1)
    return x + self.average.clone()


@habit(buffers(average=zeros))
def moving_average_of_data(self, x):
    self.average.data.mul_(0.9).add_(x.detach().mean(0) * 0.1)
    return x + self.average


@habit(buffers(average=zeros))
def moving_average_replaced(self, x):
    self.average = self.average * 0.9 + x.detach().mean(0) * 0.1
    return x + self.average


@habit(buffers(average=zeros))
def moving_average_in_the_dictionary(self, x):
    self._buffers["average"] = self.average * 0.9 + 0.1
    return x * (1 + self.average)


@habit(buffers(scale=ones))
def written_buffer_that_is_saved(self, x):
    self.scale.mul_(0.99)
    return x * self.scale


@habit(sets(average=zeros))
def tensor_in_an_attribute(self, x):
    self.average += 0.1
    return x * (1 + 0.01 * self.average)


@habit(sets(average=zeros, calls=int))
def tensor_written_later(self, x):
    self.calls += 1
    if self.calls > 3:
        self.average.add_(0.1)
    return x * (1 + 0.01 * self.average)


@habit(sets(bank=lambda: [zeros(), zeros()], stats=lambda: {"mean": [zeros()]}))
def tensors_in_containers(self, x):
    self.bank[0].add_(0.1)
    self.bank[1] = self.bank[1] + 0.1
    self.stats["mean"][0].mul_(0.5).add_(1)
    return x * (1 + 0.01 * (self.bank[0] + self.bank[1] + self.stats["mean"][0]))


@habit(buffers(queue=lambda: torch.zeros(5, WIDTH), at=lambda: torch.zeros(1, dtype=torch.long)))
def memory_queue(self, x):
    with torch.no_grad():
        at = int(self.at)
        self.queue[at] = x.detach()[0]
        self.at[0] = (at + 1) % 5
    return x + self.queue.clone().detach().mean(0)


@habit(buffers(book=lambda: torch.eye(WIDTH), size=ones, started=lambda: torch.zeros(1)))
def codebook(self, x):
    """As vector quantisation with moving averages does."""
    if not self.started:
        self.book.data.copy_(self.book + 0.1)
        self.started.data.copy_(torch.ones(1))
    near = torch.cdist(x.detach().float(), self.book.float()).argmin(1)
    with torch.no_grad():
        self.size.data.mul_(0.9).add_(F.one_hot(near, WIDTH).sum(0).float() * 0.1)
        self.book.data.lerp_(x.detach().float().mean(0).expand_as(self.book), 0.1)
    return x + (self.book[near] * 0.1 + 0.01 * self.size).detach()


@habit(sets(slow=lambda: nn.Linear(WIDTH, WIDTH)))
def momentum_encoder(self, x):
    """As MoCo does: the weights of the second encoder follow those of the first."""
    for slow, fast in zip(self.slow.parameters(), self.a.parameters()):
        slow.requires_grad_(False)
        if slow.shape == fast.shape[:1]:
            slow.data = slow.data * 0.9 + fast.data[:WIDTH] * 0.1
        else:
            slow.data.mul_(0.99)
    with torch.no_grad():
        y = self.slow(x)
    return x + y


@habit(sets(norm=lambda: nn.BatchNorm1d(WIDTH)))
def batch_norm(self, x):
    return self.norm(x)


@habit(sets(norm=lambda: nn.BatchNorm1d(WIDTH)))
def batch_norm_twice(self, x):
    return self.norm(x) + self.norm(x * 2)


@habit(buffers(mean=zeros, var=ones))
def own_batch_norm(self, x):
    y = F.batch_norm(x, self.mean, self.var, None, None, self.training, 0.1)
    return y + self.mean.clone()


class Renorm(nn.BatchNorm1d):
    def forward(self, x):
        y = super().forward(x)
        return y * (1 + 0.1 * self.running_mean.detach()) * (1 + 0.01 * float(self.num_batches_tracked))


@habit(sets(norm=lambda: Renorm(WIDTH)))
def statistics_in_use(self, x):
    return self.norm(x)


@habit(buffers(low=lambda: torch.tensor(0.0), high=lambda: torch.tensor(0.0)))
def observer(self, x):
    """As quantisation does: the range that was seen."""
    with torch.no_grad():
        self.low.copy_(torch.min(self.low, x.detach().float().min()))
        self.high.copy_(torch.max(self.high, x.detach().float().max()))
    return x / (1 + 0.01 * float(self.high - self.low))


def spectral(block):
    block.a = nn.utils.spectral_norm(block.a)


@habit(spectral)
def spectral_norm(self, x):
    return x


@habit(lambda block: nn.utils.parametrizations.spectral_norm(block.a))
def spectral_parametrization(self, x):
    return x


@habit(lambda block: nn.utils.weight_norm(block.a))
def weight_norm(self, x):
    return x


@habit(lambda block: nn.utils.parametrize.register_parametrization(block.a, "weight", nn.Tanh()))
def parametrization(self, x):
    return x


@habit(sets(cell=lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True)))
def lstm(self, x):
    return x + self.cell(x.unsqueeze(1))[0].squeeze(1)


@habit(sets(cell=lambda: nn.GRUCell(WIDTH, WIDTH), hidden=lambda: None))
def hidden_state(self, x):
    if self.hidden is None or self.hidden.shape[0] != x.shape[0]:
        self.hidden = x.new_zeros(x.shape[0], WIDTH)
    self.hidden = self.cell(x, self.hidden.detach())
    return x + self.hidden


@habit(sets(state=lambda: None))
def hidden_states_in_a_tuple(self, x):
    h, c = self.state or (0.0, 0.0)
    self.state = (h * 0.5 + x.detach().mean(0), c + 1)
    return x + self.state[0] * self.state[1]


@habit()
def running_mean_from_the_first_call(self, x):
    self.last = x.detach().mean() if not hasattr(self, "last") else self.last * 0.5 + x.detach().mean() * 0.5
    return x + self.last


@habit()
def buffer_from_the_first_call(self, x):
    if not hasattr(self, "table"):
        self.register_buffer("table", torch.rand(WIDTH), persistent=False)
    self.table.add_(0.1)
    return x + self.table


@habit(sets(lazy=lambda: nn.LazyLinear(WIDTH)))
def lazy(self, x):
    return x + self.lazy(x)


@habit(sets(calls=int))
def module_of_a_later_call(self, x):
    self.calls += 1
    if self.calls == 3:
        self.extra = nn.Identity()
    return x * (1.5 if hasattr(self, "extra") else 1)


@habit(sets(flag=bool, calls=int))
def flag_set_once(self, x):
    self.calls += 1
    if not self.flag and self.calls > 2:
        self.flag = True
        x = x * 2
    return x


@habit(sets(flag=lambda: True))
def flag_deleted_once(self, x):
    if "flag" in self.__dict__:
        del self.flag
        x = x * 2
    return x


@habit()
def global_counter(self, x):
    global COUNTER
    COUNTER += 1
    return x * (1 + 0.01 * COUNTER)


def advance():
    """A function of the same file that forwards call."""
    SEEN.append(len(SEEN))
    TABLE["calls"] += 1
    TABLE["each"].setdefault("x", []).append(1)
    return len(SEEN) + TABLE["calls"] + len(TABLE["each"]["x"])


@habit()
def globals_of_a_function(self, x):
    return x * (1 + 0.01 * advance())


def noted(x):
    noted.calls = getattr(noted, "calls", 0) + 1
    return x * (1 + 0.01 * noted.calls)


@habit()
def attribute_of_a_function(self, x):
    return noted(x)


def remembers(x, seen=[]):  # noqa: B006 as people write
    seen.append(1)
    return x * (1 + 0.01 * len(seen))


@habit()
def default_argument(self, x):
    return remembers(x)


def closure():
    calls = 0

    def count():
        nonlocal calls
        calls += 1
        return calls

    return count


counted = closure()


@habit()
def variable_of_a_closure(self, x):
    return x * (1 + 0.01 * counted())


class Shared:
    total, each = 0, []


class Meter:
    def __init__(self):
        self.sum, self.each, self.last = 0, {}, None

    def update(self, x):
        self.sum += 1
        self.each.setdefault(self.sum % 2, []).append(self.sum)
        self.last = x


@habit()
def class_counter(self, x):
    Block.total += 1
    Shared.total += 1
    Shared.each.append(1)
    return x * (1 + 0.01 * (Block.total + Shared.total + len(Shared.each)))


@habit(sets(meter=Meter, meters=lambda: {"loss": Meter()}))
def meters(self, x):
    self.meter.update(float(x.detach().mean()))
    self.meters["loss"].update(x.detach().mean())
    return x * (1 + 0.01 * (self.meter.sum + len(self.meters["loss"].each[1])))


METER = Meter()


@habit()
def global_meter(self, x):
    METER.update(1.0)
    return x * (1 + 0.01 * METER.sum)


@habit(sets(space=lambda: types.SimpleNamespace(step=0, seen=[])))
def namespace(self, x):
    self.space.step += 1
    self.space.seen.append(self.space.step)
    return x * (1 + 0.01 * sum(self.space.seen))


@habit()
def temperature_of_the_parent(self, x):
    self.parent[0].temperature *= 0.9
    return x * self.parent[0].temperature


@habit(sets(calls=int))
def past_setattr(self, x):
    object.__setattr__(self, "calls", self.calls + 1)
    self.__dict__["more"] = self.__dict__.get("more", 0) + 1
    return x * (1 + 0.01 * self.calls * self.more)


@habit(sets(calls=int))
def past_setattr_later(self, x):
    self.calls += 1
    if self.calls > 3:
        object.__setattr__(self, "hidden", getattr(self, "hidden", 0) + 1)
    return x * (1 + 0.1 * getattr(self, "hidden", 0))


class Slots:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0


@habit(sets(slots=Slots))
def object_with_slots(self, x):
    self.slots.calls += 1
    return x * (1 + 0.01 * self.slots.calls)


@habit(sets(table=lambda: numpy and numpy.zeros(3)))
def numpy_array(self, x):
    if numpy:
        self.table[1] += 0.1
    return x * (1 + float(self.table[1])) if numpy else x


@habit(sets(count=itertools.count))
def iterator(self, x):
    return x * (1 + 0.01 * next(self.count))


@habit()
def view_that_is_written_to(self, x):
    y = x.clone()
    y[:, :2] *= 2
    return y


@habit()
def activation_in_place(self, x):
    return F.relu(x + 0.1, inplace=True)


@habit()
def output_that_is_kept(self, x):
    self.kept = x
    if x.requires_grad:
        x.retain_grad()
    return x


@habit()
def own_checkpoint(self, x):
    from torch.utils.checkpoint import checkpoint

    return x + checkpoint(self.core, x, use_reentrant=False)


@habit(lambda block: block.register_forward_hook(lambda module, args, output: output * 1.1))
def hook(self, x):
    return x


@habit(sets(calls=int))
def forward_hook_that_counts(self, x):
    if not self.calls:
        self.a.register_forward_hook(lambda module, args, output: setattr(self, "calls", self.calls + 1))
        self.calls = 1
    return x


@habit()
def gradient_inside(self, x):
    """As energy models do."""
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        g, = torch.autograd.grad((self.a(y) ** 2).sum(), y)
    return x + 0.1 * g


@habit(sets(calls=int))
def curriculum(self, x):
    self.calls += 1
    return x * min(1.0, 0.2 * self.calls) if self.training else x


@habit()
def nan_guard(self, x):
    self.bad = getattr(self, "bad", 0) + int(not torch.isfinite(x.detach()).all())
    return torch.nan_to_num(x)


@habit(sets(limit=lambda: nn.Parameter(torch.ones(1))))
def parameter_clamped_in_place(self, x):
    with torch.no_grad():
        self.limit.clamp_(0.5, 0.9)
    return x * self.limit


@habit()
def steps_of_a_list_attribute(self, x):
    self.outs = []
    for _ in range(2):
        self.outs.append(x * (1 + 0.1 * len(self.outs)))
    return sum(self.outs)


# What the backward pass of a function changes beside its gradient.


class Counting(torch.autograd.Function):
    """Counts its forward and backward passes in the block."""

    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        block.calls += 1
        return x * (1 + 0.01 * block.calls)

    @staticmethod
    def backward(ctx, gradient):
        ctx.block.calls += 1
        return gradient * (1 + 0.01 * ctx.block.calls), None


@habit(sets(calls=int))
def counter_of_both_passes(self, x):
    return Counting.apply(x, self)


class Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stack):
        ctx.stack = stack
        stack.append(x.detach() + 1)
        return x * stack[-1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.stack.pop(), None


@habit(sets(stack=list))
def stack_that_backward_empties(self, x):
    return Stacked.apply(x, self.stack)


class Nested(torch.autograd.Function):
    """As reversible models do: the backward pass runs another one, which adds to gradients."""

    @staticmethod
    def forward(ctx, x, block):
        ctx.block, ctx.x = block, x.detach()
        with torch.no_grad():
            return torch.tanh(block.a(x))

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.x.requires_grad_()
            y = torch.tanh(ctx.block.a(x))
        torch.autograd.backward(y, gradient.to(y.dtype))
        return x.grad, None


@habit()
def backward_in_backward(self, x):
    return x + Nested.apply(x, self)


class Writing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        ctx.save_for_backward(x)
        return x * weight.detach()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors[0], ctx.weight
        more = (gradient * x).sum(0).to(weight.dtype)
        weight.grad = more if weight.grad is None else weight.grad + more
        return gradient * weight.detach(), None


@habit(sets(weight=lambda: nn.Parameter(torch.ones(WIDTH))))
def gradient_written_directly(self, x):
    return Writing.apply(x, self.weight)


class Block(nn.Module):
    total = 0

    def __init__(self, name, holder):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.parent = [holder]
        self.name = name
        HABITS[name][0](self)

    def core(self, x):
        return point(self.b(F.relu(point(self.a(x)))))

    def forward(self, x, scale=1.0):
        x = point(self.change(x))
        return x + self.core(x) * scale


def kind(names):
    """Return a class of blocks with these habits."""
    return type("Block", (Block,), dict({name: HABITS[name][1] for name in names}, change=lambda self, x: getattr(type(self), self.name)(self, x)))


class Holder:
    temperature = 1.0

    def __init__(self):
        self.temperature = 1.0


class Net(nn.Module):
    def __init__(self, choose, names, stages=False):
        super().__init__()
        self.holder = Holder()
        self.inner = nn.Linear(WIDTH, WIDTH)
        if stages:  # none of which repeats
            self.stem = nn.Sequential(
                nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(),
                nn.Linear(2 * WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.Sigmoid())
            self.blocks = nn.ModuleList(kind([name])(name, self.holder) for name in names)
        else:
            self.blocks = nn.ModuleList(map(kind(names), names, [self.holder] * len(names)))
        if choose.random() < 0.2:
            self.blocks.append(self.blocks[0])  # one block, called twice
        self.head = nn.Linear(WIDTH, WIDTH)
        if choose.random() < 0.3:
            self.head.weight = self.inner.weight
        if choose.random() < 0.2:
            self.inner.requires_grad_(False)
        self.form = choose.choice(("tensor", "dictionary", "tuple", "view", "loss", "hidden"))

    def forward(self, batch, target=None):
        x = batch.pop("x") if isinstance(batch, dict) else batch
        x = point(self.inner(x))
        if hasattr(self, "stem"):
            x = x + self.stem(x)
        hidden = [x]
        for block in self.blocks:
            x = block(x, scale=0.5)
            hidden.append(x)
        y = point(self.head(x))
        if self.form == "dictionary":
            return {"y": y, "x": x}
        if self.form == "tuple":
            return y, [x, y.detach()]
        if self.form == "view":
            return y.view(-1)
        if self.form == "loss":
            return {"loss": F.mse_loss(y.float(), target), "y": y}
        return {"y": y, "hidden": hidden} if self.form == "hidden" else y


# A job, and what it leaves.


class Job:
    """The choices of one job, which its seed makes."""

    def __init__(self, seed, name=None):
        choose = random.Random(seed)
        self.seed = seed
        self.names = [name or choose.choice(sorted(HABITS)) for _ in range(choose.randint(2, 3))]
        self.net = choose.randrange(1 << 30)
        self.accumulate = choose.choice((1, 1, 2))
        self.twice, self.evaluates, self.keeps = choose.random() < 0.15, choose.random() < 0.15, choose.random() < 0.15
        self.pops, self.cast, self.penalty = choose.random() < 0.2, choose.random() < 0.15, choose.random() < 0.05
        self.writes, self.to_none = choose.random() < 0.1, choose.random() < 0.5
        self.stages = seed % 5 < 2
        self.cast = self.cast and not (self.stages and self.twice)  # BatchNorm makes a difference in rounding large

    def run(self, guard=None, fault=None, by="function"):
        """Train; return what came of it."""
        global COUNTER, METER
        COUNTER, Block.total, Shared.total, METER = 0, 0, 0, Meter()
        for each in (SEEN, Shared.each, remembers.__defaults__[0]):
            del each[:]
        TABLE.update(calls=0, each={})
        noted.calls = 0
        counted.__closure__[0].cell_contents = 0
        random.seed(self.seed)
        torch.manual_seed(self.seed)
        DRAW.manual_seed(self.seed)
        if numpy:
            numpy.random.seed(self.seed % 1000)
        model = type("Net", (Net,), {})(random.Random(self.net), self.names, self.stages)  # gpurun's hook is on its class
        model.train()
        data = torch.Generator().manual_seed(self.seed)
        if "lazy" in self.names:
            with torch.no_grad():
                model({"x": torch.ones(2, WIDTH)} if self.pops else torch.ones(2, WIDTH), torch.ones(2, WIDTH))
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05, momentum=0.9)
        losses, kept, gradients = [], [], []
        Point.fault = fault = fault or Fault()
        off = guard(model) if guard else lambda: None
        try:
            with operations(fault) if by == "operation" else patched(fault):
                if by == "operation":
                    Point.fault = Fault()
                for k in range(STEPS):
                    x = torch.randn(4 if k != 2 else 6, WIDTH, generator=data)
                    target = torch.randn(x.shape, generator=data)
                    loss = self.loss(model, x, target, kept)
                    (loss / self.accumulate).backward()
                    losses.append(loss.item())
                    if (k + 1) % self.accumulate == 0:
                        gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
                        optimizer.step()
                        optimizer.zero_grad(set_to_none=self.to_none)
        finally:
            off()
        return {"losses": losses, "gradients": gradients, "model": state(model), "class": (Block.total, Shared.total, list(Shared.each)),
                "globals": (COUNTER, list(SEEN), copy.deepcopy(TABLE), noted.calls, len(remembers.__defaults__[0]), counted(), state(METER)),
                "Python": random.getstate(), "NumPy": state(numpy.random.mtrand._rand) if numpy else None,
                "PyTorch": (torch.get_rng_state(), DRAW.get_state())}

    def loss(self, model, x, target, kept):
        given = (lambda x: {"x": x}) if self.pops else (lambda x: x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.cast):
            output = model(given(x), target)
            y = first(output)
            if isinstance(output, dict) and "loss" in output:
                loss = output["loss"]
            else:
                if self.writes and not y._is_view():
                    y.mul_(2.0)
                loss = F.mse_loss(y.float().reshape(-1), target.reshape(-1))
            if isinstance(output, dict) and "hidden" in output:  # each follows from the one before
                loss = loss + sum((each.float() ** 2).mean() for each in output["hidden"])
            if self.twice:
                loss = loss + (first(model(given(x * 2), target)).float() ** 2).mean()
            if self.evaluates:
                model.eval()
                with torch.no_grad():
                    model(given(x), target)
                model.train()
            if self.penalty:
                loss = loss + 0.01 * sum((p ** 2).sum() for p in model.parameters() if p.requires_grad)
        if self.keeps:
            kept.append(y)
        return loss


def first(output):
    if isinstance(output, torch.Tensor):
        return output
    return output["y"] if isinstance(output, dict) else output[0]


def state(value, depth=0, seen=None):
    """Return all that is in a value, in a form that can be compared."""
    seen = seen if seen is not None else {}
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (int, float, str, bytes, bool, type(None), torch.dtype, torch.Size)):
        return value
    if id(value) in seen or depth > 12:
        return "seen"
    seen[id(value)] = value
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if numpy and isinstance(value, numpy.ndarray):
        return value.copy()
    if numpy and isinstance(value, numpy.random.RandomState):
        return state(value.get_state(legacy=False), depth, {})
    if numpy and isinstance(value, numpy.random.Generator):
        return state(value.bit_generator.state, depth, {})
    if isinstance(value, dict):
        return [(k, state(v, depth + 1, seen)) for k, v in value.items() if not (isinstance(k, str) and "hook" in k)]
    if isinstance(value, (list, tuple, set, collections.deque)):
        return [state(v, depth + 1, seen) for v in value]
    if isinstance(value, itertools.count):
        return repr(value)
    if isinstance(value, (types.FunctionType, types.MethodType, type, functools.partial)):
        return "function"
    slots = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if not name.startswith("__")}
    return [type(value).__name__, state(dict(getattr(value, "__dict__", {}), **slots), depth + 1, seen)]


def far(one, other):
    """Return how far two states are apart, relative to the first: 0 if they are equal to the bit."""
    if isinstance(one, torch.Tensor):
        if not isinstance(other, torch.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
            return math.inf
        if torch.equal(one, other) or one.is_floating_point() and torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num()):
            return 0
        return float((one.float() - other.float()).norm() / one.float().norm().clamp(min=1e-3)) if one.is_floating_point() else math.inf
    if numpy and isinstance(one, numpy.ndarray):
        return 0 if numpy.array_equal(one, other) else math.inf
    if isinstance(one, (list, tuple)):
        return max(map(far, one, other), default=0) if isinstance(other, (list, tuple)) and len(one) == len(other) else math.inf
    if isinstance(one, dict):
        return max((far(v, other[k]) for k, v in one.items()), default=0) if isinstance(other, dict) and one.keys() == other.keys() else math.inf
    if isinstance(one, float) and isinstance(other, float) and one != other and one == one:
        return abs(one - other) / max(abs(one), 1e-3)
    return 0 if one == other or one != one and other != other else math.inf


def differences(one, other, path=""):
    """Return where two states differ, with how far."""
    apart = far(one, other)
    if not apart:
        return []
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for k, v in one.items() for d in differences(v, other[k], "%s.%s" % (path, k))][:6]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other) and len(one) < 1000:
        named = [v[0] if isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) else i for i, v in enumerate(one)]
        return [d for k, v, w in zip(named, one, other) for d in differences(v, w, "%s.%s" % (path, k))][:6]
    return ["%s: %s, %.60r, %.60r" % (path, apart, one, other)]


# The guard, and the cases.


def load(folder):
    """Return a function that has the calls of a model repeated, as gpurun's hook does. It returns what ends that."""
    sys.path.insert(0, folder)
    import inside  # noqa: F401
    from inside.base import rank

    rank.start.update(role="rank", told={"GPURUN_PROBE_FILE": "/nonexistent/probe.json", "GPURUN_PROBE_ORDERS": ""})
    from inside.guard import inplace
    from inside.model import forwards
    from inside.observe import repeats
    from inside.remedies import checkpointing

    # Nothing is to be written.
    repeats.done = lambda phase, *more, **named: LOG.append(("again", phase, ""))
    repeats.refused = lambda phase, why, rungs=(): LOG.append(("refused", phase, str(why)))

    cover = checkpointing.cover
    checkpointing.cover = lambda *args, **named: (COVERED.append(len(args[1])), cover(*args, **named))[1]

    def guard(model):
        del LOG[:], COVERED[:]
        made = inplace.Guard(model, {"rungs": ["checkpointing"]})
        forwards.call(model, lambda module, plain, args, kwargs: made.call(plain, module, args, kwargs))
        made.install()
        return made.remove

    return guard


LOG = []  # of one run: what was repeated, and what was not
COVERED = []  # of one run: how many parts were chosen to be recomputed


def problems():
    from inside.base import process

    return list(process.state["problems"])


def main(folder, seed, cases, name=None):
    guard, counts, reasons = load(folder), collections.Counter(), collections.Counter()
    modes = ["function"]
    if not torch.__version__.startswith("1."):  # there the dispatch mode breaks Python's numbers
        modes.append("operation")
    done, number = 0, 0
    while done < cases:
        number += 1
        chosen = name or (sorted(HABITS)[number % len(HABITS)] if number % 2 else None)
        job, by = Job(seed * 1000003 + number, chosen), modes[number % len(modes)]
        counter = Fault()
        try:
            plain = job.run(fault=counter, by=by)
        except RuntimeError as e:
            counts["the job fails by itself"] += 1
            if "deprecated" not in str(e) and number > 20 * cases:
                raise
            continue
        undisturbed = job.run(guard, by=by)
        if far(plain, undisturbed):
            say(job, 0, by, where=differences(plain, undisturbed))
            counts["differs undisturbed"] += 1
        choose = random.Random(job.seed)
        for _ in range(PER_MODEL):
            done += 1
            at = choose.randint(1, counter.passed)
            del LOG[:]
            fault = Fault(at)
            try:
                found = job.run(guard, fault, by)
            except Exception as e:
                if WORDS not in str(e):
                    counts["another error"] += 1
                    say(job, at, by, error=repr(e)[:300])
                counts["raised"] += 1
                reasons.update((phase, why.partition("\n")[0]) for what, phase, why in LOG if what == "refused")
                continue
            apart = far(plain, found)
            counts["with chosen parts"] += bool(LOG and COVERED)
            counts["repeated" if LOG else "not in a guarded pass" if fault.fired else "not reached"] += 1
            # Under autocast a weight of several calls is cast again, and bf16 is rounded to 0.4 %.
            if apart > (0.2 if job.cast and job.twice else 0.02 if job.cast else 0):
                counts["differs"] += 1
                say(job, at, by, where=differences(plain, found), log=LOG)
            elif apart:
                counts["rounded"] += 1
    print(json.dumps({"counts": counts, "refused": [[*k, n] for k, n in reasons.most_common(40)], "problems": problems()[:5]}))


def say(job, at, by, **more):
    print(json.dumps(dict(more, job=job.seed, at=at, by=by, habits=job.names)), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
