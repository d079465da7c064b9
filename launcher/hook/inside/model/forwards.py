# How the probe gets between a module and its forward, or its call, without touching the
# module: the class's forward looks up whether it was called on one of the modules that were
# registered. So the module's attributes, its state dict, its pickle and its copies stay
# unchanged, and others' hooks run where they ran.
import functools
import types
import weakref

from ..base import wall, wrapping
from . import listed


class Table(dict):
    """The modules of one class, by id: (weak reference, what runs their forward).

    Where a class is pickled by value, as cloudpickle and so MLflow do with a script's own, an
    empty table is pickled with it: nothing is changed where it is loaded.
    """

    def __reduce__(self):
        return dict, ()


def refusal(module):
    """Return why a module's forward cannot be changed on its class, "" if it can."""
    own = module.__dict__.get("forward")
    if own is not None:
        if "graph" in getattr(own, "__qualname__", ""):
            return "the model runs as CUDA graphs"
        return "%s.forward was replaced on the instance" % type(module).__name__
    if not hasattr(getattr(type(module), "forward", None), "__code__"):
        return "%s.forward is no plain function" % type(module).__name__
    return ""


TABLES = {}  # by rung


def is_wrapped(rung, module):
    """Return whether a remedy runs this module's forward."""
    return any(id(module) in table for table in TABLES.get(rung, ()))


def wrap(rung, modules, make):
    """Lets make(module) run each module's forward; returns the function that undoes it.

    The result of make is called as run(module, forward, args, kwargs), where forward is
    the class's own.
    """
    layers = {}
    try:
        for module in modules:
            kind = type(module)
            if kind not in layers:
                layers[kind] = layer(kind)
                TABLES.setdefault(rung, []).append(layers[kind][0])
            add(layers[kind][0], module, wall.passes(make(module)))
    except BaseException:
        undo(layers)
        raise
    return functools.partial(undo, layers)


def add(table, module, run):
    key = id(module)

    def gone(reference):
        if key in table and table[key][0] is reference:
            del table[key]

    table[key] = (weakref.ref(module, wall.alone(gone)), run)


def layer(kind):
    """Puts a forward before the class's own, and returns its table, and what undoes that."""
    table, original = Table(), kind.forward
    number = id

    def forward(self, *args, **kwargs):
        entry = table.get(number(self))
        if entry is None:
            return original(self, *args, **kwargs)
        return entry[1](self, original, args, kwargs)

    # TorchScript reads the original's source, and looks its names up in this function.
    forward = types.FunctionType(forward.__code__, original.__globals__, closure=forward.__closure__)
    return table, wrapping.placed(kind, "forward", functools.wraps(original)(forward))


def call(module, run, quickly=None):
    """Lets run(module, call, args, kwargs) make each call of a module, for as long as it is.

    quickly(run) returns what decides whether a call needs that. No wall is between it and the job."""
    kind = type(module)
    table, original = Table(), kind.__dict__.get("__call__")
    base = next(c for c in kind.__mro__ if "__call__" in c.__dict__)
    number, look = id, getattr

    def __call__(self, *args, **kwargs):
        # Others, as torch.fx, put their own in place of Module.__call__ for a while.
        plain = look(base, "__call__") if original is None else original
        entry = table.get(number(self))
        if entry is None:
            return plain(self, *args, **kwargs)
        return entry[1](self, plain, args, kwargs)

    plain = kind.__call__
    wrapping.placed(kind, "__call__", functools.wraps(plain)(types.FunctionType(__call__.__code__, plain.__globals__, closure=__call__.__closure__)))
    run = wall.passes(run)
    add(table, module, quickly(run) if quickly else run)


STATES: dict = {}  # by class: the modules whose copies have other attributes


def copied_with(module, values, absent):
    """Have copies and pickles of a module have these attributes, by name, and those not."""
    kind = type(module)
    if kind not in STATES:
        table, number, plain = Table(), id, getattr(kind, "__getstate__", lambda module: module.__dict__)

        def __getstate__(self):
            state, entry = plain(self), table.get(number(self))
            if entry is None or type(state) is not dict:
                return state
            values, absent = entry[1]
            return {name: values.get(name, value) for name, value in state.items() if name not in absent}

        STATES[kind] = table
        wrapping.placed(kind, "__getstate__", __getstate__)
    add(STATES[kind], module, (values, absent))


def undo(layers):
    for table, put_back in layers.values():
        table.clear()  # where somebody has put another forward before it, an empty table changes nothing
        put_back()
    layers.clear()


def around(rung, root, enter, convert=None):
    """Runs each forward of the root in the context that enter() gives; convert(output) returns the output for the caller.
    It returns the function that undoes it."""
    def run(module, forward, args, kwargs):
        with enter():
            output = forward(module, *args, **kwargs)
        return convert(output) if convert else output

    return wrap(rung, [root], lambda module: run)


# What models call it in an attribute that is True while it is on.
FLAGS = frozenset(("gradient_checkpointing", "grad_checkpointing", "use_checkpoint", "use_grad_checkpointing", "use_gradient_checkpointing"))


def is_recomputed(root):
    """Return whether blocks of a model are recomputed in the backward pass, by gpurun or by a switch of its own."""
    modules = listed.modules(root)
    if any("CheckpointWrapper" in kind.__name__ for kind in listed.classes(modules)):
        return True
    wrapped = TABLES.get("checkpointing")
    flagged = {kind for kind in listed.classes(modules) if any(hasattr(kind, flag) for flag in FLAGS)}
    for module in modules:
        if wrapped and is_wrapped("checkpointing", module):
            return True
        if type(module) in flagged or not FLAGS.isdisjoint(module.__dict__):
            if any(listed.has(module, flag) and getattr(module, flag, None) is True for flag in FLAGS):
                return True
    return False
