# One block under activation checkpointing: what its forward saves is dropped, and its
# backward runs the forward once more. That second run must see what the first saw, and
# leave no trace: statistics, counters and random numbers are as if it had not been.
import functools
import inspect
import random
import sys
import types
import weakref

from . import compared, exclusions


class Block:
    """Runs the forward of one block, in every step."""

    def __init__(self, tell=None, count=None, when=None):
        self.tell, self.when = tell, when
        self.given_up = False
        self.compared = compared
        self.steps = self.compared.Steps(count)
        self.state = None  # what its forward changes: known after the first call

    def __call__(self, module, forward, args, kwargs):
        call = None
        try:
            if not self.given_up and (self.when is None or self.when()) and trains(module, args, kwargs):
                call = self.prepare(module, forward, args, kwargs)
        except Exception as e:
            self.give_up("%s: %s" % (type(e).__name__, e))
        if call is None:
            return forward(module, *args, **kwargs)
        return call.run()

    def prepare(self, module, forward, args, kwargs):
        if holds_cache(args, kwargs):
            self.give_up("%s is given a cache, which its second run would write to again" % type(module).__name__)
            return None
        return Call(self, module, forward, args, kwargs)

    def give_up(self, reason):
        self.given_up = True
        if self.tell:
            self.tell(reason)


class Call:
    """One call of a block: its forward, and the runs in its backward."""

    def __init__(self, block, module, forward, args, kwargs):
        import torch

        self.block, self.module, self.forward = block, module, forward
        self.phase, self.output, self.error = "new", None, None
        self.compares, self.sketch = block.steps.forward(), None
        self.tensors: list = []
        # What is a list now may be longer by the time of the second run.
        self.args = [self.put(value, torch.Tensor) for value in args]
        self.kwargs = {key: self.put(value, torch.Tensor) for key, value in kwargs.items()}
        self.given = (args, kwargs)
        self.first = block.state is None
        self.state = State(module) if self.first else block.state
        self.tensors += [torch.empty(0, device=d) for d in self.state.devices - {t.device for t in self.tensors}]
        self.modes = self.state.modes()
        self.before = self.state.read()

    def put(self, value, tensor):
        if isinstance(value, tensor):
            self.tensors.append(value)
            return Slot(len(self.tensors) - 1)
        if type(value) in (list, dict, set):
            return Copy(value.copy())
        return value

    def get(self, value, tensors):
        if isinstance(value, Slot):
            return tensors[value.index]
        return value.value.copy() if isinstance(value, Copy) else value

    def run(self):
        from torch.utils.checkpoint import checkpoint

        try:
            self.copied = self.first or self.state.writes_inputs
            saved = [kept(t) for t in self.tensors] if self.copied else self.tensors
            versions = [version(t) for t in self.tensors]
            if self.compares:
                with self.block.compared.early_stop_off():
                    output = checkpoint(self.step, *saved, use_reentrant=False)
            else:
                output = checkpoint(self.step, *saved, use_reentrant=False)
            self.output = None
        except Exception as e:
            if self.phase == "begun":
                raise
            self.block.give_up("%s: %s" % (type(e).__name__, e))
            if self.phase == "new":
                args, kwargs = self.given
                return self.forward(self.module, *args, **kwargs)
            output, self.output = self.output, None
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None
        tensors, self.tensors = self.tensors, None
        if self.first:
            self.state.writes_inputs = versions != [version(t) for t in tensors]
            self.block.state = self.state
        return output

    def step(self, *tensors):
        """Is what PyTorch checkpoints: called once forward, then once a backward."""
        if self.phase == "new":
            return self.forwards()
        return self.again(tensors)

    def forwards(self):
        self.phase = "begun"
        (args, kwargs), self.given = self.given, None
        try:
            self.output = self.forward(self.module, *args, **kwargs)
        except BaseException as e:
            # Some versions of PyTorch do not clean up after a forward that raises: they
            # do not see it.
            self.error = e
        self.phase = "done"
        try:
            if self.error is None and self.first:
                self.before = self.state.keep(self.before)
            if self.error is None and self.compares:
                self.sketch = self.block.compared.sketch(self.output)
        except Exception as e:
            self.block.give_up("%s: %s" % (type(e).__name__, e))
        return self.output

    def again(self, tensors):
        if self.copied:
            # No leaf, which cannot be written to, and there may be a third run.
            tensors = [t.clone() for t in tensors]
        args = [self.get(value, tensors) for value in self.args]
        kwargs = {key: self.get(value, tensors) for key, value in self.kwargs.items()}
        with Rewound(self.state, self.before, self.modes):
            output = self.forward(self.module, *args, **kwargs)
        self.block.steps.backward = True
        if self.sketch is not None:
            why = self.block.compared.difference(self.sketch, self.block.compared.sketch(output))
            if why:
                self.block.compared.fail(type(self.module).__name__, why, self.block.give_up)
        return output


class Slot:
    def __init__(self, index):
        self.index = index


class Copy:
    def __init__(self, value):
        self.value = value


def trains(module, args, kwargs):
    """Return whether the call is one that a backward pass may follow."""
    import torch

    if not torch.is_grad_enabled() or torch.jit.is_tracing() or not hooks_allowed(torch):
        return False
    for value in list(args) + list(kwargs.values()):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return True
    return any(p.requires_grad for p in module.parameters())


def hooks_allowed(torch):
    """Return whether saved tensors may be replaced: not inside torch.func, nor while torch.compile traces."""
    allowed = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
    return (allowed is None or allowed()) and not exclusions.compiling()


def holds_cache(args, kwargs):
    """Return whether a call is given a cache of keys and values, as transformers has."""
    for value in list(args) + list(kwargs.values()):
        if hasattr(value, "get_seq_length") or any(base.__name__.endswith("Cache") for base in type(value).__mro__):
            return True
    return False


def version(tensor):
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode
        return 0


COPIES = {}  # by id: (weak reference to the tensor, its version, weak reference to the copy)


def kept(tensor):
    """Return a copy of a block's input, for a forward that may write to it.

    What all blocks are given, as a mask, is copied once.
    """
    key = id(tensor)
    of, then, copy = COPIES.get(key, (None, None, None))
    copy = copy() if copy is not None and of() is tensor and then == version(tensor) else None
    if copy is None:
        copy = tensor.detach().clone()
        if tensor.requires_grad:
            copy.requires_grad_()
        COPIES[key] = (weakref.ref(tensor, lambda _: COPIES.pop(key, None)), version(tensor), weakref.ref(copy))
    return copy


def is_norm(module):
    """Return whether a module keeps running statistics of its inputs."""
    from torch.nn.modules.batchnorm import _NormBase

    return isinstance(module, _NormBase) and module.running_mean is not None


def is_plain_norm(module):
    """Return whether it is one whose output does not depend on them while it trains."""
    return is_norm(module) and type(module).__module__.startswith(("torch.nn.", "timm."))


class State:
    """What the forward of a block changes beside its output.

    At first everything is looked at. keep, after the first forward, leaves what that
    forward changed; so later calls read only that. Nothing here keeps a module alive.
    """

    def __init__(self, module):
        modules = [m for m in module.modules() if not type(m).__module__.startswith("torch.distributed")]
        norms = [m for m in modules if is_plain_norm(m)]
        self.modules = [weakref.ref(m) for m in modules]
        self.norms = [(weakref.ref(m), {}) for m in norms]
        self.writes_inputs = False
        # PyTorch keeps the random numbers of the devices that it sees among the inputs.
        self.devices = {p.device for p in module.parameters() if p.device.type != "cpu"}
        plain = {id(m) for m in norms}
        self.places: list = [Buffer(m, name) for m in modules if id(m) not in plain for name in m._buffers]
        self.places += [Attribute(m, name) for m in modules for name in m.__dict__ if not is_internal(name)]
        self.places += [Names(m) for m in modules]
        self.places += around(modules)
        self.places += [PythonRandom(), NumpyRandom()]

    def read(self):
        return [place.read() for place in self.places]

    def keep(self, before):
        changed = [(p, b) for p, b in zip(self.places, before) if p.changed(b)]
        more = [(p, b) for place, b in changed for p, b in place.parts(b)]
        self.places = [place for place, _ in more]
        return [b for _, b in more]

    def modes(self):
        """Return whether each module is in training mode, None for one that is gone."""
        return [getattr(ref(), "training", None) for ref in self.modules]

    def set_modes(self, modes):
        for ref, mode in zip(self.modules, modes):
            module = ref()
            if module is not None and module.training is not mode:
                module.training = mode


class Rewound:
    """Takes the state of a block back for a while, and leaves no trace of that while."""

    def __init__(self, state, before, modes):
        self.state, self.before, self.modes = state, before, modes

    def __enter__(self):
        self.modes_after = self.state.modes()
        self.after = [place.take() for place in self.state.places]
        self.state.set_modes(self.modes)
        for place, value in zip(self.state.places, self.before):
            place.rewind(value)
        norms = [(ref(), scratch) for ref, scratch in self.state.norms]
        self.lent = [(norm, lend(norm, scratch)) for norm, scratch in norms if norm is not None and norm.training]

    def __exit__(self, *exception):
        for norm, own in self.lent:
            norm._buffers.update(own)
        for place, value in zip(self.state.places, self.after):
            place.put_back(value)
        self.state.set_modes(self.modes_after)


def lend(norm, scratch):
    """Return a norm other tensors to update, and returns its own."""
    own = {}
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        value = norm._buffers.get(name)
        if value is None:
            continue
        other = scratch.get(name)
        if other is None or other.device != value.device or other.shape != value.shape or other.dtype != value.dtype:
            other = scratch[name] = value.detach().clone()
        own[name] = value
    norm._buffers.update({name: scratch[name] for name in own})
    return own


def is_internal(name):
    """Return whether an attribute is one that PyTorch's modules have for themselves."""
    return name in ("training", "_parameters", "_buffers", "_modules") or name.startswith("_") and "hook" in name or name.startswith("_fsdp")


MISSING = object()


class Place:
    """Something of a module that a forward may change."""

    def __init__(self, module, name=""):
        self.ref, self.name = weakref.ref(module), name

    @property
    def module(self):
        return self.ref()

    def parts(self, before):
        return [(self, before)]


class Buffer(Place):
    """A buffer of a module, which may be written to or replaced."""

    def take(self):
        return self.module._buffers.get(self.name, MISSING)

    def read(self):
        value = self.take()
        return value, (value if value is None or value is MISSING else value.detach().clone())

    def changed(self, before):
        own, copy = before
        now = self.take()
        if now is not own or copy is None or copy is MISSING:
            return now is not own
        import torch

        return now.shape != copy.shape or not torch.equal(now, copy)

    def rewind(self, before):
        copy = before[1]
        # The second run may write to it, and there may be a third.
        self.put_back(copy if copy is None or copy is MISSING else copy.clone())

    def put_back(self, value):
        if value is MISSING:
            self.module._buffers.pop(self.name, None)
        else:
            self.module._buffers[self.name] = value


class Attribute(Place):
    """An attribute of a module, which may be replaced or, if it is a list, changed."""

    def names(self):
        return self.module.__dict__

    def read(self):
        value = self.names().get(self.name, MISSING)
        return value, (value.copy() if type(value) in (list, dict, set) else None)

    take = read

    def changed(self, before):
        value, copy = before
        now = self.names().get(self.name, MISSING)
        if now is not value:
            return not (type(now) in (int, float, str, bool, tuple) and type(now) is type(value) and now == value)
        return copy is not None and not same(now, copy)

    def put_back(self, read):
        value, copy = read
        if copy is not None and not same(value, copy):
            value.clear()
            value.extend(copy) if type(value) is list else value.update(copy)
        if value is MISSING:
            self.names().pop(self.name, None)
        else:
            self.names()[self.name] = value

    rewind = put_back


class Global(Attribute):
    """A global of the file that a forward is in, or an attribute of what no weak reference
    can be had of."""

    def __init__(self, space, name):
        self.space, self.name = space, name

    def names(self):
        return self.space


def around(modules):
    """Return what forwards may change that is no module's of the block: globals that they
    name, and attributes of other objects that the modules hold, as of their parent."""
    found, own = {}, {id(m) for m in modules}
    for module in modules:
        forward = inspect.unwrap(type(module).forward)
        space = getattr(forward, "__globals__", {})
        for name in named(getattr(forward, "__code__", None)):
            if plain(space.get(name)):
                found[id(space), name] = Global(space, name)
        for other in [o for value in list(module.__dict__.values()) for o in held(value) if id(o) not in own]:
            for name, value in vars(other).items():
                if plain(value) and not is_internal(name):
                    found[id(other), name] = of(other, name)
    return list(found.values())


def named(code):
    """Return the names that a function's code looks up, also inside it."""
    if code is None:
        return set()
    return set(code.co_names).union(*(named(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def plain(value):
    """Return whether it is a number or a small container, whose changes are seen and undone."""
    return type(value) in (int, float) or type(value) in (list, dict, set) and len(value) <= 10000


def held(value):
    """Return the objects that an attribute refers to, which may be the parent of the block."""
    values = value if type(value) in (list, tuple) and len(value) <= 4 else [value]
    values = [v() if isinstance(v, weakref.ref) else v for v in values]
    skipped = (type, types.ModuleType, types.FunctionType, types.MethodType, functools.partial)
    return [v for v in values if type(getattr(v, "__dict__", None)) is dict and not isinstance(v, skipped) and not hasattr(v, "element_size")]


def of(other, name):
    try:
        return Attribute(other, name)
    except TypeError:
        return Global(vars(other), name)


def same(one, other):
    """Return whether two lists, dicts or sets hold the same objects."""
    if len(one) != len(other):
        return False
    if type(one) is dict:
        return all(key in other and other[key] is value for key, value in one.items())
    if type(one) is set:
        return one == other
    return all(a is b for a, b in zip(one, other))


class Names(Place):
    """The names of a module's attributes and buffers: a first forward may add some."""

    def read(self):
        return set(self.module.__dict__), set(self.module._buffers)

    def changed(self, before):
        return any(now - then for now, then in zip(self.read(), before))

    def parts(self, before):
        attributes, buffers = (now - then for now, then in zip(self.read(), before))
        new = [(Attribute(self.module, name), (MISSING, None)) for name in attributes if not is_internal(name)]
        return new + [(Buffer(self.module, name), (MISSING, MISSING)) for name in buffers]

    def take(self):
        return None

    def rewind(self, value):
        pass

    put_back = rewind


class PythonRandom:
    """Python's own random numbers; PyTorch keeps its own."""

    def read(self):
        return random.getstate()

    take = read

    def changed(self, before):
        return self.read() != before

    def parts(self, before):
        return [(self, before)]

    def rewind(self, state):
        random.setstate(state)

    put_back = rewind


class NumpyRandom(PythonRandom):
    """NumPy's global random numbers, where the program has loaded it."""

    def read(self):
        numpy = sys.modules.get("numpy.random")
        try:
            return numpy.get_state(legacy=True)[:5]
        except (AttributeError, TypeError):  # it is not loaded, or another generator was put in
            return None

    take = read

    def changed(self, before):
        now = self.read()
        return now is not None and (before is None or now[2:] != before[2:] or (now[1] != before[1]).any())

    def rewind(self, state):
        if state is not None:
            sys.modules["numpy.random"].set_state(state)

    put_back = rewind
