# What a call of the root changes beside its outputs: random numbers, statistics, attributes of
# modules. A call that is repeated begins with what the first one began with.
#
# Attributes that a forward sets are noted as it sets them. What it changes otherwise (lists,
# numbers of other objects, buffers) is looked for in the first calls, and from then on in those
# that are larger than all before: what was seen to change is read before each call; what was
# not is compared after a failure.
import contextlib
import sys
import types
import typing
import weakref

from . import imports, recompute

MISSING, version = recompute.MISSING, recompute.version

FIRST = 3  # calls in which all is looked at
EVERY = 256  # calls after which it is looked at again
SMALL = 64 << 10  # bytes of a tensor or array of which a copy is always made, where all is looked at
MOST_BYTES = 16 << 20  # of a buffer that the forward writes to, of which a copy is made before each call
MOST_ITEMS = 10000  # in a container


class Unrepeatable(Exception):
    """Says why a call cannot be repeated."""


class Root:
    """Knows what the root's forward changes."""

    def __init__(self, root):
        self.root = weakref.ref(root)
        self.calls, self.largest = 0, 0
        self.places, self.base = [], []  # what forwards were seen to change; all else, as last seen
        self.renew()

    def renew(self):
        """Lists the modules, parameters and buffers."""
        import torch

        root = self.root()
        self.modules, self.parameters, self.buffers = list(root.modules()), list(root.parameters()), list(root.buffers())
        self.tensors = [t for t in self.parameters + self.buffers if not t.is_inference()]
        self.modal = [m for m in self.modules if not is_plain(m, torch.nn)]
        self.norms = [m for m in self.modules if recompute.is_plain_norm(m)]
        self.devices = sorted({t.device for t in self.tensors if t.device.type == "cuda"}, key=str)

    def is_stale(self):
        """Tells whether the model has other modules or parameters than those listed."""
        root = self.root()
        return any(list(map(id, now)) != list(map(id, then)) for now, then in ((root.modules(), self.modules), (root.parameters(), self.parameters)))

    def before(self, size):
        """Comes before a call with inputs of so many elements, and gives its beginning."""
        self.calls += 1
        whole = self.calls <= FIRST or size > self.largest or self.calls % EVERY == 0
        self.largest = max(self.largest, size)
        if whole and self.calls > 1 and self.is_stale():
            self.renew()
        return Beginning(self, whole)

    def all_places(self):
        norms = {id(m) for m in self.norms}
        found: list = []
        for module in self.modules:
            if id(module) not in norms:
                found += [Buffer(module, name) for name in module._buffers]
            found += of_space(module.__dict__, module)
        for kind in {type(m) for m in self.modules if not type(m).__module__.startswith("torch.")}:
            found += [ClassAttribute(kind, name) for name, value in vars(kind).items() if type(value) in (int, float, bool)] + of_space(vars(kind), kind)
        for place in recompute.around(self.modules):
            found.append(Number(place.names(), place.name))
        for space in {id(f.__globals__): f.__globals__ for f in forwards(self.modules)}.values():
            found += [Stream(value) for value in list(space.values()) if is_stream(value)]
        return list({place.key(): place for place in found + [PythonRandom(), NumpyRandom()]}.values())

    def learn(self, places):
        """Is told of places that a forward has changed."""
        known = {place.key() for place in self.places}
        self.places = self.places + [place for place in places if place.key() not in known]


def forwards(modules):
    import inspect

    found = {type(m): inspect.unwrap(type(m).forward) for m in modules}
    return [f for f in found.values() if hasattr(f, "__globals__") and not f.__module__.startswith("torch.")]


def is_plain(module, nn):
    """Tells whether a module of PyTorch computes the same in training and in evaluation."""
    return type(module) in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.GroupNorm, nn.Embedding, nn.ReLU, nn.GELU, nn.SiLU,
                            nn.Tanh, nn.Sigmoid, nn.Softmax, nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Flatten)


class Beginning:
    """The state before one call."""

    def __init__(self, known, whole):
        import torch

        self.known, self.whole, self.log = known, whole, []
        self.cpu = torch.get_rng_state()
        self.cuda = [torch.cuda.get_rng_state(d) for d in known.devices]
        self.cast = autocast(torch)
        self.versions = [t._version for t in known.tensors]
        self.modes = [m.training for m in known.modal]
        self.places = known.all_places() if whole else known.places
        self.values = [place.read(True) for place in self.places]
        LOGS.append(self.log)

    def returned(self):
        """Comes after a call that returned: what it changed is known from then on."""
        close(self.log)
        if not self.whole:
            return
        found = [(p, v) for p, v in zip(self.places, self.values) if p.changed(v)]
        for place, value in found:
            place.learned(value)
        self.known.learn([p for p, _ in found])
        self.places, self.values, self.whole = [p for p, _ in found], [v for _, v in found], False
        # What is as it was is what later calls are compared with.
        known = {p.key() for p in self.known.places}
        self.known.base = [(p, p.read(False)) for p in self.known.all_places() if p.key() not in known]

    def check(self):
        """Comes after a failure: raises where something was changed that cannot be put back."""
        close(self.log)
        known = self.known
        if known.is_stale():
            known.renew()
            raise Unrepeatable("the model has other modules or parameters than before")
        if [m.training for m in known.modal] != self.modes:
            raise Unrepeatable("modules were switched between training and evaluation")
        mine = {id(b) for m in known.norms for b in m._buffers.values()} | {id(p.take()) for p in self.places if isinstance(p, Buffer)}
        for t, v in zip(known.tensors, self.versions):
            if t._version != v and id(t) not in mine:
                raise Unrepeatable("a parameter or buffer was written to")
        if self.whole:
            return
        for place, value in known.base:
            if place.changed(value):
                raise Unrepeatable("%s may have changed in this call" % place.words())

    def rewind(self):
        """Puts back what this call began with, and gives what puts the present back."""
        present = Present(self)
        set_random(self.known.devices, self.cpu, self.cuda)
        for kind, space, name, old in reversed(self.log):
            put(space, name, old)
        for place, value in zip(self.places, self.values):
            place.put_back(value)
        LOGS.append(present.log)
        return present

    def norms_behind(self, partial):
        """Gives by norm the names of those statistics that already have this call's inputs, and how
        often it was used.

        PyTorch counts a batch before it computes its statistics, and writes those after all
        else that may fail. The count is undone for the norm that the failure was in, partial.
        """
        import torch

        versions = {id(t): v for t, v in zip(self.known.tensors, self.versions)}
        found, uses = {}, {}
        for norm in self.known.norms:
            statistics = [name for name, b in norm._buffers.items() if b is not None]
            written = [name for name in statistics if norm._buffers[name]._version != versions.get(id(norm._buffers[name]))]
            count = norm._buffers.get("num_batches_tracked")
            if "num_batches_tracked" in written:
                uses[norm] = count._version - versions.get(id(count), 0) - (norm is partial)
                if norm is partial:
                    with torch.no_grad():
                        count.sub_(1)
                if uses[norm]:
                    found[norm] = statistics
            elif written:
                found[norm] = written
        return found, {norm: n for norm, n in uses.items() if n}


def set_random(devices, cpu, cuda):
    import torch

    torch.set_rng_state(cpu)
    for d, state in zip(devices, cuda):
        torch.cuda.set_rng_state(state, d)


class Present:
    """What a repeated call of the past finds, and leaves as it was."""

    def __init__(self, beginning):
        import torch

        self.beginning, self.log = beginning, []
        self.cpu = torch.get_rng_state()
        self.cuda = [torch.cuda.get_rng_state(d) for d in beginning.known.devices]
        self.values = [place.read(True) for place in beginning.places]
        self.set = {(id(space), name): (kind, space, name, space.get(name, MISSING)) for kind, space, name, _ in beginning.log}
        mine = {p.key() for p in beginning.places}
        self.rest = [(p, p.read(False)) for p in beginning.known.all_places() if p.key() not in mine]

    def check(self):
        """Raises where a repeated call has changed more than the first one can have."""
        close(self.log)
        for place, value in self.rest:
            if place.changed(value):
                raise Unrepeatable("%s changed in the repeated call" % place.words())

    def put_back(self):
        """Ends a repeated call whose effects are there already."""
        close(self.log)
        set_random(self.beginning.known.devices, self.cpu, self.cuda)
        for place, value in zip(self.beginning.places, self.values):
            place.put_back(value)
        for kind, space, name, old in reversed(self.log):
            put(space, name, old)
        for kind, space, name, value in self.set.values():
            put(space, name, value)
        self.check()


# Attributes that modules are set, while the root is called.

LOGS = []  # those of the calls under way


def close(log):
    LOGS[:] = [each for each in LOGS if each is not log]


def watch_attributes(torch):
    """Has modules note which of their attributes are set; gives the function that undoes it."""
    Module = torch.nn.Module
    plain = Module.__setattr__

    def __setattr__(self, name, value):
        if LOGS:
            noted(self, name)
        plain(self, name, value)

    Module.__setattr__ = imports.like(plain, __setattr__)
    return lambda: setattr(Module, "__setattr__", plain) if Module.__setattr__ is __setattr__ else None


def noted(module, name):
    own = module.__dict__
    for kind in ("_parameters", "_buffers", "_modules"):
        space = own.get(kind)
        if space is not None and name in space:
            break
    else:
        kind, space = "", own
    for log in LOGS:
        log.append((kind, space, name, light(space.get(name, MISSING)) if kind == "" else space.get(name, MISSING)))


def put(space, name, value):
    value = full(value)
    if value is MISSING:
        space.pop(name, None)
    else:
        space[name] = value


class Slot:
    """A tensor of the model. One that is part of a graph, or large, is kept alive by the model
    alone; of a small one that may be written to, a copy is made."""

    def __init__(self, tensor, copies):
        size = tensor.numel() * tensor.element_size()
        self.ref, self.version = weakref.ref(tensor), version(tensor)
        self.copy = tensor.detach().clone() if copies and size <= SMALL else None
        self.tensor = tensor if tensor.grad_fn is None and size <= MOST_BYTES else None

    def same(self, value):
        return self.ref() is value and version(value) == self.version and (self.copy is None or equal(self.copy, value))

    def restore(self):
        import torch

        tensor = self.ref()
        if tensor is None:
            return Gone()
        if not self.same(tensor):
            if self.copy is None:
                raise Unrepeatable("a tensor of the model was written to")
            with torch.no_grad():
                tensor.copy_(self.copy)
        return tensor


class Gone:
    """Stands for a tensor that nobody keeps any more: to use it fails, to replace it does not."""

    def __getattr__(self, name):
        raise Unrepeatable("a tensor of the model is gone")


def light(value, copies=False):
    """Gives a value without keeping a tensor alive."""
    import torch

    return Slot(value, copies) if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) else value


def full(value):
    return value.restore() if isinstance(value, Slot) else value


def same(kept, value):
    if isinstance(kept, Slot):
        return kept.same(value)
    return kept is value or type(value) in (int, float, str, bool) and type(kept) is type(value) and kept == value


# Places: what a forward may change otherwise.


class Place:
    of: typing.Any
    name: str

    def learned(self, before):
        """Is told that a forward changes it."""

    def key(self):
        return type(self).__name__, id(self.of), self.name

    def words(self):
        return "the attribute %s" % self.name


def of_space(space, owner):
    """Gives the places in a module's or class's attributes."""
    found: list = []
    for name, value in list(space.items()):
        if recompute.is_internal(name) or name in ("_parameters", "_buffers", "_modules", "__dict__"):
            continue
        if is_container(value):
            found.append(Container(owner, name, value))
        elif is_stream(value):
            found.append(Stream(value))
        elif is_array(value):
            found.append(Array(owner, name, value))
        elif hasattr(value, "__next__"):
            raise Unrepeatable("the model holds an iterator, %s" % name)
        elif hasattr(value, "element_size") and name not in ("weight", "bias"):
            found.append(Written(owner, name, value))
    return found


def is_container(value):
    import collections

    return isinstance(value, (list, dict, set, collections.deque)) and len(value) <= MOST_ITEMS and not isinstance(value, types.MappingProxyType)


def is_array(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_stream(value):
    """Tells whether it is a source of random numbers."""
    import random
    import torch

    numpy = sys.modules.get("numpy.random")
    return isinstance(value, (torch.Generator, random.Random)) or numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState))


class Container(Place):
    """What a list, dictionary, set or deque holds."""

    def __init__(self, of, name, value):
        self.of, self.name, self.value = of, name, value

    def key(self):
        return "container", id(self.value), ""

    def read(self, copies):
        if isinstance(self.value, dict):
            return {k: light(v, copies) for k, v in self.value.items()}
        return [light(v, copies) for v in self.value]

    def changed(self, before):
        if len(before) != len(self.value):
            return True
        if type(before) is dict:
            return any(k not in self.value or not same(v, self.value[k]) for k, v in before.items())
        if isinstance(self.value, set):
            return any(full(v) not in self.value for v in before)
        return not all(map(same, before, self.value))

    def put_back(self, before):
        if not self.changed(before):
            return
        items = {k: full(v) for k, v in before.items()} if type(before) is dict else [full(v) for v in before]
        self.value.clear()
        self.value.extend(items) if hasattr(self.value, "extend") else self.value.update(items)


class Number(Place):
    """A number or container in a global, or in an object that a module holds."""

    def __init__(self, space, name):
        self.of, self.name = space, name

    def read(self, copies):
        value = self.of.get(self.name, MISSING)
        return value, Container(self.of, self.name, value).read(copies) if is_container(value) else None

    def changed(self, before):
        value, inner = before
        now = self.of.get(self.name, MISSING)
        if inner is None or now is not value:
            return not same(value, now)
        return Container(self.of, self.name, value).changed(inner)

    def put_back(self, before):
        value, inner = before
        put(self.of, self.name, value)
        if inner is not None:
            Container(self.of, self.name, value).put_back(inner)


class ClassAttribute(Place):
    """A number of a module's class."""

    def __init__(self, kind, name):
        self.of, self.name = kind, name

    def read(self, copies):
        return vars(self.of).get(self.name, MISSING)

    def changed(self, before):
        return not same(before, self.read(False))

    def put_back(self, before):
        if self.changed(before):
            setattr(self.of, self.name, before)


class Written(Place):
    """A tensor that is a plain attribute, which may be written to."""

    def __init__(self, of, name, value):
        self.of, self.name, self.ref = of, name, weakref.ref(value)

    def key(self):
        return "tensor", id(self.of), self.name

    def read(self, copies):
        value = self.ref()
        return None if value is None else Slot(value, copies)

    def changed(self, before):
        value = self.ref()
        return value is not None and before is not None and not before.same(value)

    def put_back(self, before):
        if before is not None and self.ref() is not None:
            before.restore()


class Array(Place):
    """An array of NumPy, which may be written to."""

    def __init__(self, of, name, value):
        self.of, self.name, self.value = of, name, value

    def key(self):
        return "array", id(self.value), ""

    def read(self, copies):
        return self.value.copy() if self.value.nbytes <= SMALL else None

    def changed(self, before):
        return before is not None and bool((before != self.value).any())

    def put_back(self, before):
        if before is not None:
            self.value[...] = before


class Stream(Place):
    """A source of random numbers."""

    name = ""

    def __init__(self, value):
        self.of = value

    def words(self):
        return "a generator of random numbers"

    def read(self, copies):
        for method in ("get_state", "getstate"):
            if hasattr(self.of, method):
                return getattr(self.of, method)()
        return self.of.bit_generator.state

    def changed(self, before):
        return not alike(before, self.read(False))

    def put_back(self, before):
        for method in ("set_state", "setstate"):
            if hasattr(self.of, method):
                getattr(self.of, method)(before)
                return
        self.of.bit_generator.state = before


def alike(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(v, other[k]) for k, v in one.items())
    answer = one == other
    return bool(answer.all()) if hasattr(answer, "all") else bool(answer)


class PythonRandom(Place):
    """Python's own random numbers; PyTorch keeps its own."""

    of, name, kept = None, "", recompute.PythonRandom()

    def words(self):
        return "Python's random numbers"

    def read(self, copies):
        return self.kept.read()

    def changed(self, before):
        return self.kept.changed(before)

    def put_back(self, before):
        self.kept.put_back(before)


class NumpyRandom(PythonRandom):
    """NumPy's global random numbers."""

    kept = recompute.NumpyRandom()

    def words(self):
        return "NumPy's random numbers"


class Buffer(Place):
    """A buffer: where a forward writes to it, a copy is kept; else its version says that none did."""

    copies = False

    def __init__(self, module, name):
        self.of, self.name = module._buffers, name

    def words(self):
        return "the buffer %s" % self.name

    def take(self):
        return self.of.get(self.name, MISSING)

    def learned(self, before):
        value = before[0]
        if value is not None and value is not MISSING and value.numel() * value.element_size() > MOST_BYTES:
            raise Unrepeatable("the forward writes to a buffer of %d MiB" % (value.numel() * value.element_size() >> 20))
        self.copies = True

    def read(self, copies):
        value = self.take()
        if value is None or value is MISSING:
            return value, 0, None
        wanted = self.copies or copies and value.numel() * value.element_size() <= SMALL
        return value, version(value), value.detach().clone() if wanted else None

    def changed(self, before):
        value, then, copy = before
        now = self.take()
        if now is not value or now is None or now is MISSING:
            return now is not value
        return version(now) != then or copy is not None and not equal(now, copy)  # batch_norm leaves the version

    def put_back(self, before):
        import torch

        value, then, copy = before
        put(self.of, self.name, value)
        if value is None or value is MISSING or copy is not None and equal(value, copy):
            return
        if copy is not None:
            with torch.no_grad():
                value.copy_(copy)
        elif version(value) != then:
            raise Unrepeatable("the forward wrote to the buffer %s" % self.name)


def equal(one, other):
    import torch

    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def autocast(torch):
    """Gives by kind of device whether autocast is on, and to which type; and whether it caches."""
    if hasattr(torch, "get_autocast_dtype"):
        found = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu")]
    else:
        found = [("cuda", torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()), ("cpu", torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype())]
    return found, torch.is_autocast_cache_enabled()


@contextlib.contextmanager
def cast_as(state):
    """Casts as at the time of the state."""
    import torch

    kinds, caches = state
    with contextlib.ExitStack() as stack:
        for kind, enabled, dtype in kinds:
            if kind == "cpu" or torch.cuda.is_available():
                stack.enter_context(torch.autocast(kind, enabled=enabled, dtype=dtype, cache_enabled=caches))
        yield


class lent:
    """Gives norms other tensors for the statistics that are not to change: by norm their names."""

    def __init__(self, norms, uses=None):
        self.norms, self.uses, self.own = norms, uses or {}, []

    def __enter__(self):
        for norm, names in self.norms.items():
            mine = {name: norm._buffers[name] for name in names}
            self.own.append((norm, mine))
            norm._buffers.update({name: b.detach().clone() for name, b in mine.items()})
        return self

    def __exit__(self, *exception):
        for norm, mine in self.own:
            lent = norm._buffers.get("num_batches_tracked")
            self.uses[norm] = self.uses.get(norm, 0) - (lent._version if lent is not None else 0)
            norm._buffers.update(mine)

    def check(self):
        """Raises where a norm was used more often than the failed forward had come to."""
        if any(self.uses.values()):
            raise Unrepeatable("a module that keeps statistics is used several times in a forward")
