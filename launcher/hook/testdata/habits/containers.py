"""State in containers and in records."""
import array
import collections
import dataclasses
import types
import typing

import numpy
import torch
from counters import Counter, scaled
from harness import WIDTH, Habit, habit


@dataclasses.dataclass
class State:
    step: int = 0
    seen: list = dataclasses.field(default_factory=list)


@habit
class Dataclass(Habit):
    def setup(self):
        self.state = State()

    def change(self, x):
        self.state.step += 1
        self.state.seen.append(self.state.step)
        return scaled(x, sum(self.state.seen))


@dataclasses.dataclass(frozen=True)
class Frozen:
    counter: Counter


@habit
class FrozenDataclass(Habit):
    def setup(self):
        self.state = Frozen(Counter())

    def change(self, x):
        return scaled(x, self.state.counter.step())


@habit
class Namespace(Habit):
    def setup(self):
        self.space = types.SimpleNamespace(step=0, seen=[])

    def change(self, x):
        self.space.step += 1
        self.space.seen.append(self.space.step)
        return scaled(x, sum(self.space.seen))


class Pair(typing.NamedTuple):
    calls: Counter
    seen: list


@habit
class NamedTuple(Habit):
    def setup(self):
        self.pair = Pair(Counter(), [])

    def change(self, x):
        self.pair.seen.append(self.pair.calls.step())
        return scaled(x, sum(self.pair.seen))


@habit
class OrderedDictionary(Habit):
    def setup(self):
        self.cache, self.calls = collections.OrderedDict(), 0

    def change(self, x):
        self.calls += 1
        self.cache[self.calls % 3] = self.cache.get(self.calls % 3, 0) + self.calls
        self.cache.move_to_end(self.calls % 3)
        while len(self.cache) > 2:
            self.cache.popitem(last=False)
        return scaled(x, sum((i + 1) * v for i, v in enumerate(self.cache.values())))


@habit
class DefaultDictionaryAndCounter(Habit):
    def setup(self):
        self.each, self.count = collections.defaultdict(list), collections.Counter()

    def change(self, x):
        self.count["calls"] += 1
        self.each[self.count["calls"] % 2].append(self.count["calls"])
        return scaled(x, sum(self.each[0]) + self.count.total() if hasattr(self.count, "total") else len(self.each[0]))


class Settings(dict):
    """A dictionary whose keys are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


@habit
class OwnDictionary(Habit):
    def setup(self):
        self.settings = Settings(step=0, inner=Settings(n=0))

    def change(self, x):
        self.settings.step += 1
        self.settings.inner.n += 2
        return scaled(x, self.settings.step + self.settings.inner.n)


class Track(list):
    calls = 0

    def append(self, value):
        self.calls += 1
        super().append(value)


@habit
class OwnList(Habit):
    def setup(self):
        self.track = Track()

    def change(self, x):
        self.track.append(len(self.track))
        return scaled(x, self.track.calls + len(self.track))


@habit
class DequeWithALength(Habit):
    def setup(self):
        self.recent, self.calls = collections.deque(maxlen=2), 0

    def change(self, x):
        self.calls += 1
        self.recent.append(self.calls)
        return scaled(x, sum(self.recent))


@habit
class SetOfObjects(Habit):
    def setup(self):
        self.each, self.seen = {Counter()}, set()

    def change(self, x):
        self.seen.add(len(self.seen))
        return scaled(x, sum(each.step() for each in self.each) + len(self.seen))


@habit
class DictionaryByObject(Habit):
    def setup(self):
        self.key = Counter()
        self.each = {self.key: Counter(), (1, 2): [Counter()]}

    def change(self, x):
        return scaled(x, self.each[self.key].step() + self.each[1, 2][0].step())


@habit
class ListOfTensors(Habit):
    def setup(self):
        self.features = []

    def change(self, x):
        self.features = (self.features + [x.detach().mean(0)])[-4:]
        return x + 0.1 * torch.stack(self.features).mean(0)


@habit
class Arrays(Habit):
    def setup(self):
        self.numbers, self.floats, self.bytes, self.view = numpy.zeros(4), array.array("d", [0.0, 0.0]), bytearray(4), memoryview(bytearray(4))

    def change(self, x):
        self.numbers[1] += 0.1
        self.floats[0] += 0.1
        self.bytes[2] += 1
        self.view[0] += 1
        return x * (1 + float(self.numbers[1]) + self.floats[0] + 0.01 * self.bytes[2] + 0.01 * self.view[0])


@habit
class ArrayOfObjects(Habit):
    def setup(self):
        self.each = numpy.array([Counter(), Counter()], dtype=object)

    def change(self, x):
        return scaled(x, self.each[1].step())


@habit
class NestedContainers(Habit):
    def setup(self):
        self.state = {"a": [({"b": [Counter()]}, 1)]}

    def change(self, x):
        return scaled(x, self.state["a"][0][0]["b"][0].step())


@habit
class LongList(Habit):
    def setup(self):
        self.losses = [0.0] * 20000

    def change(self, x):
        self.losses[-1] += 1
        return scaled(x, self.losses[-1])


@habit
class LargeArray(Habit):
    def setup(self):
        self.table = numpy.zeros(1 << 20)

    def change(self, x):
        self.table[1 << 19] += 1
        return scaled(x, int(self.table[1 << 19]))


@habit
class TensorInAContainer(Habit):
    def setup(self):
        self.bank = [torch.zeros(WIDTH), {"mean": [torch.zeros(WIDTH)]}]

    def change(self, x):
        self.bank[0].add_(0.1)
        self.bank[1]["mean"][0].mul_(0.5).add_(1)
        return x * (1 + 0.1 * (self.bank[0] + self.bank[1]["mean"][0]))


@habit
class TensorsOfAnObject(Habit):
    def setup(self):
        self.counter = Counter()
        self.counter.average = torch.zeros(WIDTH)

    def change(self, x):
        self.counter.average.data.lerp_(x.detach().mean(0), 0.1)
        return x + self.counter.average
