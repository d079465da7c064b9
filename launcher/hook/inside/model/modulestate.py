# The state of a part of the model that its forward changes beside its output, and how it is taken back for a while.
import contextlib
import weakref

import torch

from . import places, reach


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
        numbers = [p for p in self.places if isinstance(p, places.Numbers)]
        if numbers:
            self.places = [p for p in self.places if not isinstance(p, places.Numbers)] + [places.Group(numbers)]
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


@contextlib.contextmanager
def untouched(module):
    """Restores the state that runs of a module without gradients change: buffers, attributes, modes, random numbers, and
    the weights that autocast has cast."""
    state = State(module)
    devices = sorted({p.device.index for p in module.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices), Rewound(state, state.read(), state.modes()), torch.no_grad():
        try:
            yield
        finally:
            torch.clear_autocast_cache()
