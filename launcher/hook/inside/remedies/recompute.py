# One block under activation checkpointing: what its forward saves is dropped, and its
# backward runs the forward once more. That second run must see what the first saw, and
# leave no trace: statistics, counters and random numbers are as if it had not been.
import contextlib
import operator
import threading
import weakref

import torch

from ..base import wall
from ..model import exclusions, modulestate, places
from . import compared

running = threading.local()  # "again": whether a block's second run is under way in this thread


class Block:
    """Runs the forward of one block, in every step."""

    def __init__(self, tell=None, count=None, when=None, reads=False):
        self.tell, self.when, self.reads = tell, when, reads  # reads: it is known that its inputs are not written to
        self.given_up = False
        self.steps = compared.Steps(count)
        self.state = None  # what its forward changes: known after the first call

    def __call__(self, module, forward, args, kwargs):
        call = None
        try:
            if not self.given_up and (self.when is None or self.when(module)) and not getattr(running, "again", False) and trains(module, args, kwargs):
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
        self.block, self.module, self.forward = block, module, forward
        self.phase, self.output, self.error, self.noted = "new", None, None, True
        self.compares, self.sketch = block.steps.forward(), None
        self.tensors: list = []
        # What is a list now may be longer by the time of the second run.
        self.args = [self.put(value) for value in args]
        self.kwargs = {key: self.put(value) for key, value in kwargs.items()}
        self.given = (args, kwargs)
        self.first, self.lost = block.state is None, ""
        self.state = modulestate.State(module) if self.first else block.state
        if self.first and self.state.unreadable:
            raise places.Unrepeatable("%s holds %s" % (type(module).__name__, self.state.unreadable))
        self.tensors += [torch.empty(0, device=d) for d in self.state.devices - {t.device for t in self.tensors}]
        self.modes = self.state.modes()
        self.before = self.state.read()

    def put(self, value):
        """Return a function that gives an argument again, by the tensors that PyTorch kept."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return operator.itemgetter(len(self.tensors) - 1)
        if type(value) in (list, dict, set):
            copy = value.copy()
            return lambda tensors: copy.copy()
        return lambda tensors: value

    def run(self):
        from torch.utils.checkpoint import checkpoint

        step = wall.remedy(self.step)
        try:
            self.copied = self.first and not self.block.reads or self.state.writes_inputs
            saved = [kept(t) for t in self.tensors] if self.copied else self.tensors
            versions = self.versions = [places.version(t) for t in self.tensors]
            with compared.early_stop_off() if self.compares else contextlib.nullcontext():
                output = checkpoint(step, *saved, use_reentrant=False)
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
            self.state.writes_inputs = versions != [places.version(t) for t in tensors]
            self.block.state = self.state
        return output

    def step(self, *tensors):
        """Is what PyTorch checkpoints: called once forward, then once a backward."""
        return self.forwards() if self.phase == "new" else self.again(tensors)

    def forwards(self):
        self.phase = "begun"
        (args, kwargs), self.given, off = self.given, None, wall.state["off"]
        self.log = places.Log(hold=True)
        try:
            self.output = self.forward(self.module, *args, **kwargs)
        except BaseException as e:
            # Some versions of PyTorch do not clean up after a forward that raises: they
            # do not see it.
            self.error = e
        self.log.close()
        self.phase, self.noted = "done", wall.state["off"] == off
        try:
            if self.error is None:
                self.before, self.lost = self.state.keep(self.before, self.log)
            if self.error is None and self.compares:
                self.sketch = compared.sketch(self.output)
        except Exception as e:
            self.block.give_up("%s: %s" % (type(e).__name__, e))
        return self.output

    def again(self, tensors):
        written = not self.copied and self.versions != [places.version(t) for t in tensors]
        if self.copied:
            # No leaf, which cannot be written to, and there may be a third run.
            tensors = [t.clone() for t in tensors]
        args = [get(tensors) for get in self.args]
        kwargs = {key: get(tensors) for key, get in self.kwargs.items()}
        try:
            if not self.noted:
                raise places.Unrepeatable("gpurun's hook failed in its first run")
            if self.lost:
                raise places.Unrepeatable("%s changed for the first time" % self.lost)
            if written:
                raise places.Unrepeatable("an input was written to since")
            with modulestate.Rewound(self.state, self.before, self.modes, self.log):
                running.again = True  # what is recomputed already is not divided once more
                output = wall.part(self.forward, self.module, *args, **kwargs)
        except places.Unrepeatable as e:
            compared.fail(type(self.module).__name__, str(e), self.block.give_up)
        finally:
            running.again = False
        self.block.steps.backward = True
        if self.sketch is not None:
            why = compared.difference(self.sketch, compared.sketch(output))
            if why:
                compared.fail(type(self.module).__name__, why, self.block.give_up)
        return output


def trains(module, args, kwargs):
    """Return whether the call is one that a backward pass may follow."""
    if not torch.is_grad_enabled() or torch.jit.is_tracing() or not hooks_allowed(torch):
        return False
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    return any(t.requires_grad for t in given) or any(p.requires_grad for p in module.parameters())


def hooks_allowed(torch):
    """Return whether saved tensors may be replaced: not inside torch.func, nor while torch.compile traces."""
    allowed = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
    return (allowed is None or allowed()) and not exclusions.compiling()


def holds_cache(args, kwargs):
    """Return whether a call is given a cache of keys and values, as transformers has."""
    given = (*args, *kwargs.values())
    return any(hasattr(value, "get_seq_length") or any(base.__name__.endswith("Cache") for base in type(value).__mro__) for value in given)


COPIES = {}  # by id: (weak reference to the tensor, its version, weak reference to the copy)


def kept(tensor):
    """Return a copy of a block's input, for a forward that may write to it.

    What all blocks are given, as a mask, is copied once.
    """
    key = id(tensor)
    of, then, copy = COPIES.get(key, (None, None, None))
    copy = places.alive(copy()) if copy is not None and of() is tensor and then == places.version(tensor) else None
    if copy is None:
        copy = tensor.detach().clone()
        if tensor.requires_grad:
            copy.requires_grad_()
        COPIES[key] = (weakref.ref(tensor, lambda _: COPIES.pop(key, None)), places.version(tensor), weakref.ref(copy))
    return copy
