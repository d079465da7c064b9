# One block under activation checkpointing: what its forward saves is dropped, and its
# backward runs the forward once more. That second run must see what the first saw, and
# leave no trace: statistics, counters and random numbers are as if it had not been.
import threading
import weakref

from . import compared, exclusions, places, reach, wall

running = threading.local()  # "again": whether a block's second run is under way in this thread


class Block:
    """Runs the forward of one block, in every step."""

    def __init__(self, tell=None, count=None, when=None, reads=False):
        self.tell, self.when, self.reads = tell, when, reads  # reads: it is known that its inputs are not written to
        self.given_up = False
        self.compared = compared
        self.steps = self.compared.Steps(count)
        self.state = None  # what its forward changes: known after the first call

    def __call__(self, module, forward, args, kwargs):
        call = None
        try:
            if not self.given_up and (self.when is None or self.when()) and not getattr(running, "again", False) and trains(module, args, kwargs):
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
        self.phase, self.output, self.error, self.noted = "new", None, None, True
        self.compares, self.sketch = block.steps.forward(), None
        self.tensors: list = []
        # What is a list now may be longer by the time of the second run.
        self.args = [self.put(value, torch.Tensor) for value in args]
        self.kwargs = {key: self.put(value, torch.Tensor) for key, value in kwargs.items()}
        self.given = (args, kwargs)
        self.first, self.lost = block.state is None, ""
        self.state = State(module) if self.first else block.state
        if self.first and self.state.unreadable:
            raise places.Unrepeatable("%s holds %s" % (type(module).__name__, self.state.unreadable))
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

        step = wall.remedy(self.step)
        try:
            self.copied = self.first and not self.block.reads or self.state.writes_inputs
            saved = [kept(t) for t in self.tensors] if self.copied else self.tensors
            versions = self.versions = [places.version(t) for t in self.tensors]
            if self.compares:
                with self.block.compared.early_stop_off():
                    output = checkpoint(step, *saved, use_reentrant=False)
            else:
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
        if self.phase == "new":
            return self.forwards()
        return self.again(tensors)

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
                self.sketch = self.block.compared.sketch(self.output)
        except Exception as e:
            self.block.give_up("%s: %s" % (type(e).__name__, e))
        return self.output

    def again(self, tensors):
        written = not self.copied and self.versions != [places.version(t) for t in tensors]
        if self.copied:
            # No leaf, which cannot be written to, and there may be a third run.
            tensors = [t.clone() for t in tensors]
        args = [self.get(value, tensors) for value in self.args]
        kwargs = {key: self.get(value, tensors) for key, value in self.kwargs.items()}
        try:
            if not self.noted:
                raise places.Unrepeatable("gpurun's hook failed in its first run")
            if self.lost:
                raise places.Unrepeatable("%s changed for the first time" % self.lost)
            if written:
                raise places.Unrepeatable("an input was written to since")
            with Rewound(self.state, self.before, self.modes, self.log):
                running.again = True  # what is recomputed already is not divided once more
                output = wall.part(self.forward, self.module, *args, **kwargs)
        except places.Unrepeatable as e:
            self.block.compared.fail(type(self.module).__name__, str(e), self.block.give_up)
        finally:
            running.again = False
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


def is_norm(module):
    """Return whether a module keeps running statistics of its inputs."""
    from torch.nn.modules.batchnorm import _NormBase

    return isinstance(module, _NormBase) and module.running_mean is not None


def is_plain_norm(module):
    """Return whether it is one whose output does not depend on them while it trains."""
    return is_norm(module) and type(module).__module__.startswith(("torch.nn.", "timm."))


class State:
    """What the forward of a block changes beside its output.

    The first call compares everything. Later ones read what that forward changed, and what can
    be read quickly. Nothing here keeps a module alive.
    """

    def __init__(self, module):
        modules = [m for m in module.modules() if not type(m).__module__.startswith("torch.distributed")]
        norms = [m for m in modules if is_plain_norm(m)]
        self.modules = [weakref.ref(m) for m in modules]
        self.norms = [(weakref.ref(m), {}) for m in norms]
        self.writes_inputs = False
        places.watch()
        # PyTorch keeps the random numbers of the devices that it sees among the inputs.
        self.devices = {p.device for p in module.parameters() if p.device.type != "cpu"}
        walk = reach.Walk(modules, norms)
        self.places, self.copies, self.unreadable = walk.list(), float("inf"), walk.unreadable()

    def read(self):
        """Return the places with their values."""
        # A hook that a block registers would act on the rest of its second run.
        return [(place, place.read(0 if place.kind == "hooks" else self.copies, hold=True)) for place in self.places]

    def keep(self, before, log):
        """Runs after a forward; returns what its second run needs of the values before it, and which
        of them cannot be restored, "" if all can."""
        noted = log.keys()
        changed = {p.key for p, v in before if p.copies or p.changed(v, noted)}
        lost = next((p.words() for p, v in before if p.key in changed and places.is_lost(v)), "")
        for place, value in before:
            if place.key in changed and not isinstance(place, places.Numbers):
                place.learn(value)
        if self.copies:
            # What the first forward makes, as a tensor where None was, is another object after each.
            modules, norms = [m for m in (ref() for ref in self.modules) if m is not None], [ref() for ref, _ in self.norms]
            now, own = reach.Walk(modules, norms).list(), {p.key for p in self.places}
            made = reach.arisen(before, now)
            before, changed = before + made, changed | {p.key for p, _ in made}
            self.places = [p for p in self.places if p.key in changed or not p.is_steady()] + [p for p in now if p.key not in own and not p.is_steady()]
            self.copies = 0
        known = {p.key for p in self.places}
        self.places += [p for p in log.places() if p.key not in known]
        # Others may draw random numbers, or register hooks, before the second run, which then does not.
        return [(p, v) for p, v in before if p.key in changed or p.key in known and p.kind not in ("random", "hooks")], lost

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

    def __init__(self, state, before, modes, log=None):
        self.state, self.before, self.modes, self.log = state, before, modes, log

    def __enter__(self):
        self.modes_after = self.state.modes()
        self.after = [(place, place.read(self.state.copies, hold=True)) for place, _ in self.before]
        self.set = self.log.present() if self.log else []
        self.lent, self.trace = [], places.Log(hold=True)
        try:
            self.state.set_modes(self.modes)
            if self.log:
                self.log.undo()
            for place, value in self.before:
                place.put_back(value)
            norms = [(ref(), scratch) for ref, scratch in self.state.norms]
            self.lent = [(norm, lend(norm, scratch)) for norm, scratch in norms if norm is not None and norm.training]
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception):
        self.trace.close()
        for norm, own in self.lent:
            norm._buffers.update(own)
        self.trace.undo()
        places.restore(self.set)
        for place, value in self.after:
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
