# What a forward may change beside its output: attributes, buffers, classes, globals, objects that
# modules hold, sources of random numbers. Each is a place: it is read before a forward, compared
# after it, and put back before the forward runs again.
import array
import ctypes
import functools
import operator
import random
import sys
import types
import typing
import weakref
import zlib

import torch

from ..base import wall, wrapping
from . import kinds

MISSING, PRESENT = object(), object()
SMALL = 64 << 10  # bytes of a tensor or array that is always copied
CLOSELY = SMALL + 1  # the same, and the bits of larger tensors are summed: only where a pass is repeated
PIECE = 1 << 22  # elements whose bits are summed at once
MOST_BYTES = 16 << 20  # of a tensor or array that a forward writes to: it is copied before each call
MOST_ITEMS = 10000  # in a container; of a longer one all are numbers or words, or only its length is compared
DEEPEST = 16  # containers in containers


class Unrepeatable(Exception):
    """Raised with the reason why a forward cannot be repeated."""


# Values that were read.


def keep(value, copies=0, hold=False, depth=0):
    """Return what is needed to compare a value and to restore it.

    Tensors and arrays of up to so many bytes are copied. Unless hold, a tensor that is large
    or part of a graph is not kept alive.
    """
    if type(value) in kinds.ATOMS or value is MISSING:
        return value
    if isinstance(value, torch.Tensor):
        return Tensor(value, 0 if isinstance(value, torch.nn.Parameter) else copies, copies > SMALL, hold)
    if isinstance(value, kinds.CONTAINERS):
        few = kinds.size(value) <= MOST_ITEMS or kinds.ATOMS.issuperset(map(type, kinds.items(value)))
        return Items(value, copies, hold, depth) if few and depth < DEEPEST else Uncompared(value)
    if is_array(value) or is_stream(value) or isinstance(value, (bytearray, array.array)):
        return Content(value, copies)
    return Other(value, hold)


def same(kept, now):
    if isinstance(kept, Kept):
        return kept.same(now)
    return kept is now or type(kept) in kinds.ATOMS and type(now) is type(kept) and kept == now


def matches(kept, now):
    """Return whether a value is equal to the one that was kept; objects are compared by their types."""
    return kept.matches(now) if isinstance(kept, Kept) else same(kept, now)


def full(kept, now=MISSING):
    """Return the value that was kept, with its content as it was; now is the present value."""
    return kept.restore(now) if isinstance(kept, Kept) else kept


def is_lost(kept):
    """Return whether the content has changed and cannot be restored."""
    return isinstance(kept, Kept) and kept.lost()


def is_written(kept):
    """Return whether tensors or arrays that live on have another content."""
    return isinstance(kept, Kept) and kept.written()


class Kept:
    value: typing.Any = None  # keeps what was read alive

    def same(self, now):
        raise NotImplementedError

    def matches(self, now):
        return self.same(now)

    def restore(self, now):
        raise NotImplementedError

    def lost(self):
        return False

    def written(self):
        return False

    def blind(self):
        """Return whether its content is too much to be compared."""
        return False


class Identity(Kept):
    """An object without its content: an attribute was replaced. A graph is not kept alive."""

    def __init__(self, value, hold):
        whole = hold or not (isinstance(value, kinds.CONTAINERS) or is_tensor(value)) or keep(value).value is not None
        self.ref, self.value = reference(value) if is_tensor(value) else lambda: None, value if whole else None
        self.id = id(value)

    def restore(self, now):
        value = self.ref() if self.value is None else self.value
        return value if value is not None else now if id(now) == self.id else Gone()


def identity(value, hold=True):
    return value if type(value) in kinds.ATOMS or value is MISSING else Identity(value, hold)


class Gone:
    """Replaces a tensor that no longer exists: it can be replaced, not used."""

    def __getattr__(self, name):
        raise Unrepeatable("a tensor of the model is gone")


class Tensor(Kept):
    def __init__(self, value, copies, sums, hold):
        size = value.numel() * value.element_size()
        self.ref, self.version = reference(value), version(value)
        self.copy = value.detach().clone() if size <= copies else None
        self.bits = bits(value) if sums and self.copy is None else None
        self.value = value if hold or size <= MOST_BYTES and value.grad_fn is None else None

    def same(self, now):
        return self.ref() is now and self.unwritten(now)

    def unwritten(self, now):
        if version(now) != self.version or self.copy is not None and not equal(self.copy, now):
            return False
        return self.bits is None or bool(self.bits == bits(now))

    def matches(self, now):
        was = self.copy if self.copy is not None else self.ref()
        if was is now:  # there is no copy to compare it with
            return self.unwritten(now)
        return was is None or is_tensor(now) and equal(was, now.detach())

    def written(self):
        now = self.ref()
        return now is not None and not self.unwritten(now)

    def lost(self):
        return self.copy is None and self.written()

    def restore(self, now):
        tensor = self.ref()
        if tensor is None:
            return Gone()
        if self.lost() or self.copy is not None and self.copy.shape != tensor.shape:
            raise Unrepeatable("a tensor of the model was written to")
        if self.copy is not None:
            tensor.data.copy_(self.copy)  # its version stays: the values are those that a graph saved
        return tensor


class Items(Kept):
    """The items of a list, tuple, set, dictionary or deque."""

    def __init__(self, value, copies, hold, depth):
        self.id, self.kind = id(value), type(value)
        self.keys = kinds.keys(value)
        items = kinds.items(value)
        self.plain = isinstance(value, set) or kinds.ATOMS.issuperset(map(type, items))
        self.items = items if self.plain else [keep(v, copies, hold, depth + 1) for v in items]
        whole = self.plain or all(not isinstance(i, Kept) or i.value is not None for i in self.items)
        self.value = value if hold or whole else None

    def alike(self, now):
        """Return whether a value is a container of this kind, with the same keys or, a set, the same members."""
        if type(now) is not self.kind or kinds.size(now) != len(self.items):
            return False
        if isinstance(now, set):
            return set(map(id, self.items)) == set(map(id, kinds.items(now))) or kinds.ATOMS.issuperset(map(type, self.items)) and set.__eq__(now, set(self.items))
        return self.keys is None or all(map(is_one, kinds.keys(now), self.keys))

    def same(self, now):
        if not self.alike(now) or id(now) != self.id and not isinstance(now, tuple):
            return False
        return isinstance(now, set) or self.equals(now, same)

    def equals(self, now, alike):
        items = kinds.items(now)
        if self.plain:
            return kinds.ATOMS.issuperset(map(type, items)) and items == self.items
        return all(map(alike, self.items, items))

    def matches(self, now):
        return self.alike(now) and (isinstance(now, set) or self.equals(now, matches))

    def lost(self):
        return not self.plain and any(map(is_lost, self.items))

    def written(self):
        return not self.plain and any(map(is_written, self.items))

    def restore(self, now):
        value = self.value if self.value is not None else now if id(now) == self.id else None
        if self.same(now):
            return now
        if value is None and not issubclass(self.kind, tuple):
            return Gone()
        items = self.items
        if not self.plain:
            there = kinds.items(now)
            present = dict(zip(map(id, kinds.keys(now)) if self.keys is not None else range(len(there)), there)) if type(now) is self.kind else {}
            names = map(id, self.keys) if self.keys is not None else range(len(items))
            items = [full(item, present.get(name, MISSING)) for name, item in zip(names, items)]
        if issubclass(self.kind, tuple):
            if value is not None:
                return value
            return self.kind._make(items) if hasattr(self.kind, "_make") else self.kind(items)
        base = kinds.base(self.kind)
        base.clear(value)
        if self.keys is not None:
            for key, item in zip(self.keys, items):
                base.__setitem__(value, key, item)
        else:
            (set.update if base is set else base.extend)(value, items)
        return value


def is_one(a, b):
    return a is b or type(a) in kinds.ATOMS and type(a) is type(b) and a == b


class Uncompared(Kept):
    """A container of many objects, or deep in others: only its length is compared."""

    def __init__(self, value):
        self.value, self.length = value, kinds.size(value)

    def same(self, now):
        return now is self.value and kinds.size(now) == self.length

    def lost(self):
        return not self.same(self.value)

    def blind(self):
        return True

    def restore(self, now):
        if self.lost():
            raise Unrepeatable("a container of more than %d items was changed" % MOST_ITEMS)
        return self.value


class Content(Kept):
    """What changes where it is: a bytearray, an array, a source of random numbers. Of a large array there is only a sum."""

    def __init__(self, value, copies):
        self.value, self.sum = value, zlib.crc32(value.tobytes()) if is_array(value) else None
        self.copy = content(value) if self.sum is None or value.nbytes <= copies else None

    def same(self, now):
        return now is self.value and self.matches(now)

    def matches(self, now):
        if type(now) is not type(self.value):
            return False
        return alike(self.copy, content(now)) if self.sum is None else zlib.crc32(now.tobytes()) == self.sum

    def written(self):
        return not self.same(self.value)

    def lost(self):
        return self.copy is None and self.written()

    def restore(self, now):
        value = self.value
        if self.lost():
            raise Unrepeatable("an array of the model was written to")
        if is_array(value):
            if self.copy is not None:
                value[...] = self.copy
        elif not is_stream(value):
            value[:] = self.copy
        elif hasattr(value, "set_state"):
            value.set_state(self.copy)
        elif hasattr(value, "setstate"):
            value.setstate(self.copy)
        else:
            value.bit_generator.state = self.copy
        return value


def content(value):
    """Return a copy of what a value contains."""
    if is_array(value):
        return value.copy()
    if not is_stream(value):
        return value[:]
    read = getattr(value, "get_state", None) or getattr(value, "getstate", None)
    return read() if read is not None else value.bit_generator.state


class Sketch(Kept):
    """Shows in less than a microsecond whether something was changed that cannot be restored."""

    def __init__(self, read, words):
        self.read, self.state, self.words = read, read(), words

    def same(self, now):
        return self.read() == self.state

    def lost(self):
        return self.read() != self.state

    def restore(self, now):
        if self.lost():
            raise Unrepeatable("%s changed for the first time" % self.words())
        return now


class Other(Kept):
    """Any other object, of which the identity counts."""

    def __init__(self, value, hold):
        self.ref = reference(value)
        self.value = value if hold or not isinstance(self.ref, weakref.ref) else None

    def same(self, now):
        return self.ref() is now

    def matches(self, now):
        return self.ref() is None or type(self.ref()) is type(now)

    def restore(self, now):
        value = self.ref()
        return Gone() if value is None else value


def reference(value):
    """Return a weak reference, or a strong one where there is none."""
    try:
        ref = weakref.ref(value)
    except TypeError:
        return lambda: value
    return (lambda: alive(ref())) if is_tensor(value) else ref


def alive(tensor):
    """Return a tensor that a weak reference, or the garbage collector, led to. PyTorch has to know
    that there is another reference from Python: it learns that when it returns the tensor.
    (_fix_weakref does the same, but before 2.0 the tensor is never freed then.)"""
    try:
        return tensor if tensor is None else tensor.to(tensor.dtype)
    except Exception:
        return tensor


def version(tensor):
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode
        return 0


def copied(value):
    """Return a copy of a tensor, or of those in a dictionary, to which a run for a try may write; other values unchanged."""
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return value.detach().clone() if is_tensor(value) else value


def equal(one, other):
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def bits(tensor):
    """Return a sum of a tensor's bits as integers: it shows a change that leaves the version. Each has another factor, for
    changes of the last bits up and down would cancel. It is taken in pieces: memory may be short."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    try:
        pieces, total = tensor.detach().reshape(-1).split(PIECE), 0
        factors = mixed(torch.arange(1, len(pieces[0]) + 1, dtype=torch.int32, device=tensor.device))
        for piece in pieces:
            total = total * ODD + (piece.view(kinds[tensor.element_size()]) * factors[:len(piece)]).sum()
        return total
    except (RuntimeError, KeyError, NotImplementedError):  # of a kind that has no bits, as a sparse one
        return 0


ODD = 0x7FEB352D  # the constants and shifts are those of lowbias32, a mixing function of 32 bits


def mixed(numbers):
    """Return odd factors that are unlike each other."""
    for shift, factor in ((16, ODD), (15, 0x846CA68B - (1 << 32)), (16, 1)):
        numbers = (numbers ^ numbers >> shift) * factor
    return numbers | 1


def alike(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        if one and type(one[0]) is int and set(map(type, one)) == {int}:  # such as the state of Python's random numbers
            return one == other
        return len(one) == len(other) and (one is other or all(map(alike, one, other)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(v, other[k]) for k, v in one.items())
    answer = one == other
    return bool(answer.all()) if hasattr(answer, "all") else bool(answer)


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def is_array(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, "ndarray", ()))


def is_stream(value):
    """Return whether it is a source of random numbers."""
    numpy = sys.modules.get("numpy.random")
    return isinstance(value, (torch.Generator, random.Random)) or numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState))


def is_special(value):
    """Return whether a forward may change it without replacing it."""
    if isinstance(value, tuple):
        return any(is_special(each) for each in value)
    return isinstance(value, (torch.Tensor,) + kinds.CONTAINERS) or is_array(value) or is_stream(value)


# Places.


class Place:
    """A name in a namespace: of a module's attributes, parameters or buffers, of a class, an
    object, or a file. It does not keep a module alive."""

    def __init__(self, owner, name, kind="__dict__"):
        self.name, self.kind, self.copies = name, kind, 0
        self.key: tuple = (id(owner), kind, name)
        self.noted = kinds.kind(owner) == kinds.MODULE  # a log has what is set here
        self.owner = reference(owner)

    def space(self):
        owner = self.owner()
        if owner is None or type(owner) is dict:
            return owner or {}
        found = kinds.space_of(owner) if self.kind == "__dict__" else getattr(owner, self.kind) or ()
        return dict(enumerate(found)) if isinstance(found, tuple) else found

    def words(self):
        return "the %s %s" % ({"_buffers": "buffer", "_parameters": "parameter"}.get(self.kind, "attribute"), self.name)

    def take(self):
        return self.space().get(self.name, MISSING)

    def read(self, copies=0, hold=False):
        return keep(self.take(), max(copies, self.copies), hold)

    def changed(self, before, noted=()):
        """Return whether the value is another. One that was only replaced, as a log has it, is not."""
        if self.key in noted and not is_written(before) and (not isinstance(before, Kept) or before.value is None or same(before, before.value)):
            return False
        return not same(before, self.take())

    def matches(self, before):
        """Return whether the value is equal, as an object or not."""
        return matches(before, self.take())

    def learn(self, before, reader=None):
        """Has copies made from now on, where a forward writes to the value."""
        if is_written(before):
            self.copies = MOST_BYTES

    def put_back(self, before):
        now = self.take()
        value = full(before, now)
        if value is not now:
            self.give(self.name, value)

    def give(self, name, value):
        owner = self.owner()
        if type(owner) is not dict and self.kind == "__dict__" and not isinstance(owner, type) and name not in kinds.slots(type(owner)):  # type: ignore[arg-type]
            put(object.__getattribute__(owner, "__dict__"), name, value)
        elif not isinstance(owner, type) and (self.kind != "__dict__" or type(owner) is dict):
            put(self.space(), name, value)
        elif value is MISSING:
            (type if isinstance(owner, type) else object).__delattr__(owner, name)
        else:
            (type if isinstance(owner, type) else object).__setattr__(owner, name, value)

    def is_steady(self):
        """Return whether only a library's code would change it."""
        owner = self.owner()
        return self.kind != "_buffers" and kinds.is_library((owner if isinstance(owner, type) else type(owner)).__module__) and type(owner) is not dict


def put(space, name, value):
    if value is MISSING:
        space.pop(name, None)
    else:
        space[name] = value


class Names(dict):
    """Values by name, and which names were read: None for all."""

    names = None


class Numbers(Place):
    """The numbers, words and flags in a namespace, or those of some names."""

    def __init__(self, owner, names=None):
        super().__init__(owner, "")
        self.names, self.key = names, (id(owner), "numbers", "")
        self.id = id(owner)

    def words(self):
        owner = self.owner()
        return "a global" if type(owner) is dict else "a number of %s" % (owner if isinstance(owner, type) else type(owner)).__name__

    def read(self, copies=0, hold=False):
        space = self.space()
        if self.names is not None:
            items = [(name, space[name]) for name in self.names if name in space]
        else:
            items = [(name, value) for name, value in list(space.items()) if not kinds.is_internal(name)]
        found = Names((name, value if type(value) in kinds.ATOMS else PRESENT) for name, value in items if not isinstance(value, types.FunctionType))
        found.names = self.names
        return found

    def changed(self, before, noted=()):
        """Return the names whose values changed, of those that were read, but for those in a log."""
        now = self.read()
        if now == before:
            return set()
        read = [names for names in (before.names, self.names) if names is not None]
        names = {name for name in before.keys() | now.keys() if before.get(name, MISSING) != now.get(name, MISSING)}
        return {name for name in names if all(name in each for each in read) and (self.id, "__dict__", name) not in noted}

    def matches(self, before):
        return not self.changed(before)

    def learn(self, before, reader=None):
        """Reads only what changed, as its reader, a place of the same names, has found."""
        self.names = (reader or self).changed(before) | (self.names or set())

    def put_back(self, before):
        for name in self.changed(before):
            value = before.get(name, MISSING)
            if value is PRESENT:
                raise Unrepeatable("%s was replaced by a number" % name)
            self.give(name, value)


class Group(Place):
    """The numbers of several places. Mostly none has changed since they were read last, which a look at the namespaces
    shows without one at each name: a block that is recomputed has a dozen such places, which are read four times a step."""

    def __init__(self, members):
        self.name, self.kind, self.copies, self.noted = "", "numbers", 0, False
        self.members, self.key = members, ("group", tuple(p.key for p in members))
        self.latest: typing.Any = None  # what was read last
        self.seen: list = []  # the look at that time
        self.reads: list = []  # by member, what reads the namespace of its owner
        self.numbers: list = []  # by member, a function that gives the numbers that were read, None where there were none

    def words(self):
        return "a number"

    def look(self):
        """Return what differs from an earlier look if a number has another value or another name."""
        found: list = []
        for place, read, numbers in zip(self.members, self.reads, self.numbers):
            space = read(place.owner(), "__dict__")
            if place.names is None:
                found += list(space), list(map(type, space.values()))
            else:
                found.append([type(space.get(name, MISSING)) for name in place.names])
            found.append(numbers and numbers(space))
        return found

    def read(self, copies=0, hold=False):
        try:
            if self.latest is not None and self.look() == self.seen:
                return self.latest
        except (AttributeError, KeyError):  # an object or a number is gone
            pass
        self.latest, self.reads, self.numbers = [(p, p.read()) for p in self.members], [], []
        for place, values in self.latest:
            owner, names = place.owner(), [name for name, value in values.items() if value is not PRESENT]
            self.reads.append(reader_of(owner))
            self.numbers.append(operator.itemgetter(*names) if names else None)
        self.seen = self.look()
        return self.latest

    def changed(self, before, noted=()):
        return self.read() is not before and any(p.changed(v, noted) for p, v in before)

    def learn(self, before, reader=None):
        pass

    def put_back(self, before):
        if self.read() is not before:
            for place, value in before:
                place.put_back(value)

    def is_steady(self):
        return False


def reader_of(owner):
    """Return a function that reads the namespace of an owner; where it can be, one that is no Python."""
    if isinstance(owner, type):
        return type.__getattribute__
    if type(owner) is dict or not hasattr(owner, "__dict__") or kinds.slots(type(owner)):  # type: ignore[arg-type]
        return lambda owner, _: kinds.space_of(owner)
    return object.__getattribute__


class Single(Place):
    """A place that is no name in a namespace: what it holds is changed where it is."""

    def give(self, name, value):
        pass

    def is_steady(self):
        return False


class Cell(Single):
    """A variable of a function around the one that is called."""

    def __init__(self, cell):
        super().__init__(cell, "", "cell")
        self.cell = cell

    def words(self):
        return "a variable of an enclosing function"

    def take(self):
        try:
            return self.cell.cell_contents
        except ValueError:
            return MISSING

    def give(self, name, value):
        if value is not MISSING:
            self.cell.cell_contents = value


class Held(Single):
    """A container, or a source of random numbers, that is known by no name: a method of it is."""

    def __init__(self, value, name):
        super().__init__(value, name, "held")
        self.name = name

    def words(self):
        return "what %s belongs to" % self.name

    def take(self):
        return self.owner()


class Cache(Single):
    """The results that functools.lru_cache keeps of a function: how many, and how often they were looked for."""

    def __init__(self, function, name):
        super().__init__(function, name, "cache")
        self.function = function

    def words(self):
        return "the cache of %s" % self.name

    def take(self):
        return self.function

    def read(self, copies=0, hold=False):
        return Sketch(self.results, self.words)

    def results(self):
        info = self.function.cache_info()
        return info.misses, info.currsize


class Random(Single):
    """The random numbers of Python or NumPy that all share; PyTorch keeps its own."""

    def __init__(self, name):
        self.name, self.kind, self.copies, self.key, self.noted = name, "random", 0, ("random", name), False
        self.latest = None  # what was read last: mostly nothing has changed since

    def words(self):
        return "%s's random numbers" % self.name

    def take(self):
        if self.name == "Python":
            return getattr(random.getstate, "__self__", MISSING)
        return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", MISSING)

    def changed(self, before, noted=()):
        if type(before) is Sketch:
            return before.lost()
        return before is not MISSING and super().changed(before)  # NumPy may have been loaded since

    def read(self, copies=0, hold=False):
        stream = self.take()
        if stream is MISSING:
            return MISSING
        if copies or self.copies:
            return Content(stream, 0)
        source = stream if self.name == "Python" else getattr(stream, "_bit_generator", None)
        known, read = READERS.get(self.name, (None, None))
        if known is not source:
            read = memory(self.name, stream, source)
        if read is None:
            return Content(stream, 0)
        if self.latest is None or self.latest.read is not read or self.latest.state != read():
            self.latest = Sketch(read, self.words)
        return self.latest

    def learn(self, before, reader=None):
        self.copies = MOST_BYTES


class Hooks(Single):
    """The hooks on modules. Around most calls only their number is read: a forward that registers one
    then may not run twice."""

    def __init__(self, modules):
        self.name, self.kind, self.copies, self.key, self.noted = "", "hooks", 0, ("hooks", ""), False
        self.refs, self.seen, self.total = [weakref.ref(m) for m in modules], None, 0

    def words(self):
        return "the hooks of modules"

    def take(self):
        return None

    def count(self):
        from torch.utils.hooks import RemovableHandle

        if RemovableHandle.next_id != self.seen:
            self.seen, self.total = RemovableHandle.next_id, sum(map(len, self.tables()))
        return self.total

    def tables(self):
        """Yield the hooks of each kind on each module."""
        for module in (ref() for ref in self.refs):
            for name in HOOKS if module is not None else ():
                table = module.__dict__.get(name)
                if table is not None:
                    yield table

    def read(self, copies=0, hold=False):
        return Registered(self) if copies else Sketch(self.count, self.words)


class Registered(Kept):
    """The hooks that modules had."""

    def __init__(self, place):
        self.value, self.count = place, place.count()
        self.tables = {id(table): dict(table) for table in place.tables() if table}

    def same(self, now):
        return self.value.count() == self.count

    def restore(self, now):
        for table in self.value.tables():
            then = self.tables.get(id(table), {})
            if list(table) != list(then):
                table.clear()
                table.update(then)
        self.value.seen = None
        return now


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
READERS: dict = {}  # by name, where the numbers are, and what memory() found


def memory(name, stream, source):
    """Return a function that reads the numbers' state as bytes, None where it cannot be found."""
    READERS[name] = source, None
    try:
        READERS[name] = source, checked(name, stream, source)
    except Exception:
        pass
    return READERS[name][1]


def checked(name, stream, source):
    """Return that function if what it reads is the state."""
    size = 4 * 625
    if name == "Python":
        at, words = id(source) + object.__basicsize__, stream.getstate()[1]
        expected = words[-1:] + words[:-1]
    else:
        at, found = source.ctypes.state_address, stream.get_state(legacy=True)
        expected = tuple(found[1].tolist()) + (found[2],)
    if sys.implementation.name != "cpython" or type(source).__name__ not in ("Random", "MT19937"):
        return None
    read = memoryview((ctypes.c_char * size).from_address(at)).tobytes  # no frame of Python
    return read if memoryview(read()).cast("I").tolist() == list(expected) else None


# Attributes that modules set while they are called.

LOGS: list = []  # those of the calls in progress
switched = [0]  # how often a module was switched between training and evaluation


class Log:
    """The attributes and buffers that were set since it began, with their values before."""

    def __init__(self, hold=False):
        self.entries, self.hold = [], hold
        LOGS.append(self)

    def close(self):
        if self in LOGS:
            LOGS.remove(self)

    def spaces(self):
        """Return (module, kind, names before, name, value before) of each entry whose module lives."""
        found = [(ref(), kind, name, old) for ref, kind, name, old in self.entries]
        return [(m, kind, m.__dict__[kind] if kind else m.__dict__, name, old) for m, kind, name, old in found if m is not None]

    def undo(self):
        for _, _, space, name, old in reversed(self.spaces()):
            put(space, name, full(old, space.get(name, MISSING)))

    def present(self):
        """Return the values now, for restore."""
        return list({(id(s), name): (s, name, identity(s.get(name, MISSING))) for _, _, s, name, _ in self.spaces()}.values())

    def keys(self):
        """Return the keys of the places of what was set."""
        return {(id(m), kind or "__dict__", name) for m, kind, _, name, _ in self.spaces()}

    def places(self):
        """Return the places of values that were set and that may change without being replaced."""
        found = {(id(m), kind, name): (m, name, kind or "__dict__") for m, kind, s, name, _ in self.spaces() if is_special(s.get(name))}
        return [Place(*each) for each in found.values()]


def restore(present):
    for space, name, value in present:
        put(space, name, full(value, space.get(name, MISSING)))


UNDO: list = []


def watch():
    """Has modules note in LOGS which of their attributes are set."""
    if UNDO:
        return
    Module = torch.nn.Module

    def around(function):
        def call(self, name, *args, **kwargs):
            if name == "training":
                switched[0] += 1
            elif LOGS:
                try:
                    note(self, name, function.__name__)
                except Exception as e:
                    wall.failed(e, wall.ALL)  # what a remedy would restore is not known
            return function(self, name, *args, **kwargs)

        return functools.wraps(function)(call)

    for name in ("__setattr__", "__delattr__", "register_buffer"):
        UNDO.append(wrapping.put(Module, name, around(getattr(Module, name))))


def unwatch():
    while UNDO:
        UNDO.pop()()


def note(module, name, method):
    own = module.__dict__
    for kind in ("_parameters", "_buffers", "_modules"):
        space = own.get(kind)
        if space is not None and name in space:
            break
    else:
        kind, space = ("_buffers", own.get("_buffers", {})) if method == "register_buffer" else ("", own)
    value = space.get(name, MISSING)
    for log in LOGS:
        log.entries.append((weakref.ref(module), kind, name, identity(value, log.hold)))
