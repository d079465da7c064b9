"""Counts of calls, wherever scripts keep them."""
import contextvars
import functools
import itertools
import os
import threading
import types
import weakref

import lib.stats
import torch
from harness import Habit, habit
from lib import stats


class Counter:
    def __init__(self):
        self.n = 0

    def step(self):
        self.n += 1
        return self.n


def scaled(x, n):
    return x * (1 + 0.05 * (n % 7))


@habit
class NoHabit(Habit):
    pass


@habit
class Number(Habit):
    def setup(self):
        self.calls = 0

    def change(self, x):
        self.calls += 1
        return scaled(x, self.calls)


@habit
class Count(Habit):
    def setup(self):
        self.count = itertools.count(1)

    def change(self, x):
        return scaled(x, next(self.count))


COUNT = itertools.count(1)


@habit
class GlobalCount(Habit):
    def change(self, x):
        return scaled(x, next(COUNT))


@habit
class CountInADictionary(Habit):
    def setup(self):
        self.state = {"step": itertools.count(1)}

    def change(self, x):
        return scaled(x, next(self.state["step"]))


def numbers():
    n = 0
    while True:
        n += 1
        yield n


@habit
class Generator(Habit):
    def setup(self):
        self.stream = numbers()

    def change(self, x):
        return scaled(x, next(self.stream))


STREAM = numbers()


@habit
class GlobalGenerator(Habit):
    def change(self, x):
        return scaled(x, next(STREAM))


@habit
class Iterators(Habit):
    def setup(self):
        self.schedule, self.cycle = iter(range(1, 1000)), itertools.cycle([1, 2, 5])

    def change(self, x):
        return scaled(x, next(self.schedule) + next(self.cycle))


@habit
class MapAndZip(Habit):
    def setup(self):
        self.each = zip(map(int, range(1, 1000)), itertools.repeat(2), filter(None, range(1000)))

    def change(self, x):
        return scaled(x, sum(next(self.each)))


@habit
class EnumerateAndChain(Habit):
    def setup(self):
        self.each = itertools.chain([5], enumerate(itertools.islice(range(5000), 1, None)))

    def change(self, x):
        got = next(self.each)
        return scaled(x, got if isinstance(got, int) else sum(got))


def schedule():
    n = 0

    def step():
        nonlocal n
        n += 1
        return n

    return step


@habit
class Closure(Habit):
    def setup(self):
        self.schedule = schedule()

    def change(self, x):
        return scaled(x, self.schedule())


WARMUP = schedule()


@habit
class GlobalClosure(Habit):
    def change(self, x):
        return scaled(x, WARMUP())


@habit
class NestedClosure(Habit):
    def setup(self):
        inner = schedule()
        self.outer = lambda: inner() + 1

    def change(self, x):
        return scaled(x, self.outer())


@habit
class BoundMethod(Habit):
    def setup(self):
        self.tick = Counter().step

    def change(self, x):
        return scaled(x, self.tick())


@habit
class BuiltinMethod(Habit):
    def setup(self):
        self.left = list(range(1000)).pop

    def change(self, x):
        return scaled(x, self.left())


@habit
class NextOfAnIterator(Habit):
    def setup(self):
        self.tick = iter(range(1, 1000)).__next__

    def change(self, x):
        return scaled(x, self.tick())


@habit
class Partial(Habit):
    def setup(self):
        self.tick = functools.partial(Counter.step, Counter())

    def change(self, x):
        return scaled(x, self.tick())


@functools.lru_cache(None)
def calls_of(key):
    return Counter()


@habit
class CachedCounter(Habit):
    def change(self, x):
        return scaled(x, calls_of("forward").step())


@functools.lru_cache(None)
def projection(width):
    return torch.randn(width, width)


@habit
class CachedRandomMatrix(Habit):
    def change(self, x):
        return x @ projection(x.shape[-1])


class Lazy:
    @functools.cached_property
    def noise(self):
        return torch.randn(())


@habit
class CachedProperty(Habit):
    def setup(self):
        self.lazy = Lazy()

    def change(self, x):
        return x * (1 + 0.1 * self.lazy.noise)


TALLY = 0


@habit
class Global(Habit):
    def change(self, x):
        global TALLY
        TALLY += 1
        return scaled(x, TALLY)


@habit
class GlobalPastTheName(Habit):
    def change(self, x):
        globals()["TALLY"] += 1
        return scaled(x, TALLY)


@habit
class ModuleOfAPackage(Habit):
    def change(self, x):
        return scaled(x, lib.stats.tick())

    def leaves():
        return stats.calls, stats.history


@habit
class ModuleByAnotherName(Habit):
    def change(self, x):
        stats.calls += 1
        return scaled(x, stats.calls)


@habit
class ClassOfAModule(Habit):
    def change(self, x):
        return scaled(x, stats.Meter.tick())


@habit
class ImportInTheForward(Habit):
    def change(self, x):
        from lib.stats import tick

        return scaled(x, tick())


def remembers(seen=[]):  # noqa: B006 as people write
    seen.append(1)
    return len(seen)


@habit
class DefaultArgument(Habit):
    def change(self, x):
        return scaled(x, remembers())


def noted():
    noted.calls += 1
    return noted.calls


noted.calls = 0


@habit
class AttributeOfAFunction(Habit):
    def change(self, x):
        return scaled(x, noted())


class Shared:
    total, table = 0, {}


@habit
class ClassAttribute(Habit):
    calls = 0

    def change(self, x):
        ClassAttribute.calls += 1
        Shared.total += 1
        Shared.table[Shared.total % 3] = Shared.total
        return scaled(x, ClassAttribute.calls + sum(Shared.table.values()))

    def leaves():
        return ClassAttribute.calls, Shared.total, Shared.table


class Counted(type):
    calls = 0

    def tick(cls):
        type(cls).calls += 1
        return type(cls).calls


class Metered(metaclass=Counted):
    pass


@habit
class Metaclass(Habit):
    def change(self, x):
        return scaled(x, Metered.tick())

    def leaves():
        return Counted.calls


class Ticking:
    """Counts the reads of an attribute."""

    def __init__(self):
        self.reads = 0

    @property
    def now(self):
        self.reads += 1
        return self.reads


@habit
class Property(Habit):
    def setup(self):
        self.clock = Ticking()

    def change(self, x):
        return scaled(x, self.clock.now)


@habit
class PropertyOfTheModel(Habit):
    @property
    def temperature(self):
        self.reads = getattr(self, "reads", 0) + 1
        return self.reads

    def change(self, x):
        return scaled(x, self.temperature)


class Access:
    """Counts what is asked of it."""

    def __init__(self):
        self.__dict__["asked"] = []

    def __getattr__(self, name):
        self.asked.append(name)
        if name.startswith("__"):
            raise AttributeError(name)
        return len(self.asked)

    def __len__(self):
        self.asked.append("len")
        return len(self.asked)

    def __bool__(self):
        self.asked.append("bool")
        return True

    def __eq__(self, other):
        self.asked.append("eq")
        return self is other

    __hash__ = object.__hash__

    def __iter__(self):
        self.asked.append("iter")
        return iter(())

    def __repr__(self):
        self.asked.append("repr")
        return "Access"


@habit
class ObjectThatCountsAccesses(Habit):
    def setup(self):
        self.access = Access()

    def change(self, x):
        return scaled(x, self.access.anything)


class Slots:
    __slots__ = ("n", "more")

    def __init__(self):
        self.n, self.more = 0, [0]


@habit
class ObjectWithSlots(Habit):
    def setup(self):
        self.slots = Slots()

    def change(self, x):
        self.slots.n += 1
        self.slots.more[0] += 2
        return scaled(x, self.slots.n + self.slots.more[0])


class ByObject:
    n = 0


STATES = weakref.WeakKeyDictionary()
KEY = ByObject()


@habit
class WeakKeys(Habit):
    def change(self, x):
        STATES[KEY] = STATES.get(KEY, 0) + 1
        return scaled(x, STATES[KEY])


@habit
class WeakReference(Habit):
    def setup(self):
        self.own = Counter()
        self.reference = weakref.ref(self.own)

    def change(self, x):
        return scaled(x, self.reference().step())


STEP = contextvars.ContextVar("step", default=0)


@habit
class ContextVariable(Habit):
    def change(self, x):
        STEP.set(STEP.get() + 1)
        return scaled(x, STEP.get())

    def leaves():
        return STEP.get()


LOCAL = threading.local()


@habit
class ThreadLocal(Habit):
    def change(self, x):
        LOCAL.n = getattr(LOCAL, "n", 0) + 1
        return scaled(x, LOCAL.n)


@habit
class LocalOfAnObject(Habit):
    def setup(self):
        self.local = threading.local()

    def change(self, x):
        self.local.n = getattr(self.local, "n", 0) + 1
        return scaled(x, self.local.n)


@habit
class Environment(Habit):
    def change(self, x):
        os.environ["JOB_CALLS"] = str(int(os.environ.get("JOB_CALLS", 0)) + 1)
        return scaled(x, int(os.environ["JOB_CALLS"]))

    def leaves():
        return os.environ["JOB_CALLS"]


class Deep:
    def __init__(self, depth):
        self.inner = Deep(depth - 1) if depth else Counter()

    def step(self):
        return self.inner.step()


@habit
class EightDeep(Habit):
    def setup(self):
        self.config = Deep(8)

    def change(self, x):
        return scaled(x, self.config.step())


@habit
class SeventeenObjects(Habit):
    def setup(self):
        self.each = [Counter() for _ in range(17)]

    def change(self, x):
        return scaled(x, self.each[-1].step())


@habit
class FiveHundredObjects(Habit):
    def setup(self):
        self.each = [Counter() for _ in range(500)]

    def change(self, x):
        return scaled(x, self.each[499].step())


@habit
class ManyObjectsByName(Habit):
    def setup(self):
        self.each = {"name%d" % i: types.SimpleNamespace(n=0) for i in range(300)}

    def change(self, x):
        self.each["name299"].n += 1
        return scaled(x, self.each["name299"].n)


@habit
class HookName(Habit):
    def setup(self):
        self._hook_features = []

    def change(self, x):
        self._hook_features.append(1)
        return scaled(x, len(self._hook_features))


@habit
class NameOfAFramework(Habit):
    def setup(self):
        self._fsdp_calls, self.training_steps, self._ddp_state = 0, 0, {"n": 0}

    def change(self, x):
        self._fsdp_calls += 1
        self.training_steps += 2
        self._ddp_state["n"] += 3
        return scaled(x, self._fsdp_calls + self.training_steps + self._ddp_state["n"])


@habit
class PastSetattr(Habit):
    def change(self, x):
        object.__setattr__(self, "hidden", getattr(self, "hidden", 0) + 1)
        return scaled(x, self.hidden)


@habit
class SetattrOfTheModel(Habit):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "temperature":
            super().__setattr__("writes", getattr(self, "writes", 0) + 1)

    def change(self, x):
        self.temperature = 1.0
        return scaled(x, self.writes)


class ManyMethods(Habit):
    def tick(self):
        OFTEN["n"] += 1
        return OFTEN["n"]

    def change(self, x):
        return scaled(x, self.tick())

    def leaves():
        return OFTEN


OFTEN = {"n": 0}


def unused(self):
    return 0


for number in range(320):
    setattr(ManyMethods, "step_%d" % number, types.FunctionType(unused.__code__, globals(), "step_%d" % number))
ManyMethods.z_tick = ManyMethods.tick
del ManyMethods.tick
ManyMethods.tick = ManyMethods.z_tick
habit(ManyMethods)


def by_name(name):
    return getattr(SINGLE, name)()


SINGLE = Counter()


@habit
class Singleton(Habit):
    def change(self, x):
        return scaled(x, by_name("step"))


class Callable:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return scaled(x, self.calls)


@habit
class CallableObject(Habit):
    def setup(self):
        self.scale = Callable()

    def change(self, x):
        return self.scale(x)


class Manager:
    entered = 0

    def __enter__(self):
        Manager.entered += 1
        return Manager.entered

    def __exit__(self, *error):
        pass


@habit
class ContextManager(Habit):
    def change(self, x):
        with Manager() as n:
            return scaled(x, n)


@habit
class Staticmethod(Habit):
    @staticmethod
    def tick(state={"n": 0}):  # noqa: B006
        state["n"] += 1
        return state["n"]

    def change(self, x):
        return scaled(x, self.tick())


@habit
class CustomCall(Habit):
    def setup(self):
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return super().__call__(*args, **kwargs)

    def change(self, x):
        return scaled(x, self.calls)
