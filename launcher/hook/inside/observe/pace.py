# A rank's own part of its steps: how long it waits for data, and how long its forward pass
# takes. Ranks that wait for each other in each step are all as slow as the slowest; this
# shows which that is. One step a second is measured, and nothing waits for the device: the
# time between two events is read when they are over. A wait for data during which the
# device still computes what it was given is none.
import collections
import sys
import threading
import time

from ..base import process, wrapping
from ..model import callstate, exclusions, forwards
from . import memory as memory_part


KEPT = 16  # steps, of which the middle one counts
PAUSE = 1.0  # seconds between two that are looked at

state: dict = {}


class Timing:
    """One step: pairs of timers around each draw of a batch, and each call of the model."""

    def __init__(self):
        self.draws, self.calls, self.drawing, self.together = [], [], False, False

    def over(self, meter):
        return all(meter.over(last) for _, last in self.draws[-1:] + self.calls[-1:])

    def own(self, meter):
        """Return the seconds of both. A forward pass in which ranks wait for each other is none
        of its own: 0, for unknown."""
        data, forward = (sum(meter.between(*pair) for pair in pairs) for pairs in (self.draws, self.calls))
        return data, 0.0 if self.together else forward


class Pace:
    """The time of one rank's own work, if it is one of several and trains."""

    def __init__(self, meter):
        self.meter, self.thread = meter, threading.get_ident()
        self.due, self.timing, self.open, self.known = 0.0, None, None, collections.deque(maxlen=KEPT)

    def step(self):
        """Runs after an optimizer step."""
        now = time.monotonic()
        if self.timing is not None:
            self.open, self.timing, self.due = self.timing, None, now + PAUSE
        if self.open is not None and self.open.over(self.meter):
            self.known.append(self.open.own(self.meter))
            self.open = None
        if self.open is None and now >= self.due:
            self.timing = Timing()

    def spoilt(self):
        """Called when there was something else in this step: an evaluation, a checkpoint."""
        self.timing = None

    def draws(self, plain, iterator):
        timing = self.timing
        if threading.get_ident() != self.thread or timing.drawing or not sys.modules["torch"].is_grad_enabled():
            return plain(iterator)
        first, timing.drawing = self.meter.timer(), True
        try:
            return plain(iterator)
        finally:
            timing.draws.append((first, self.meter.timer()))
            timing.drawing = False

    def calls(self, plain, model, args, kwargs):
        timing, before, first = self.timing, collectives(), self.meter.timer()
        output = plain(model, *args, **kwargs)
        timing.calls.append((first, self.meter.timer()))
        timing.together = timing.together or before is None or collectives() != before
        return output

    def own(self):
        """Return the seconds of a step that it waits for data, and that its forward passes
        take; 0 is not known."""
        return tuple(sorted(figures)[len(figures) // 2] for figures in zip(*self.known)) or (0.0, 0.0)


def collectives():
    """Return how many collectives this process has begun, None if that is not known."""
    counts = callstate.sequences() or []
    return None if None in counts else sum(counts)


def arm(memory):
    """Begins after the first steps, with the measurement of the root, or None."""
    if "pace" in state or process.number("WORLD_SIZE") < 2:
        return
    state.update(pace=Pace(memory_part.meter()), compiling=exclusions.recording(sys.modules["torch"]))
    follow_loaders()
    root = memory.root() if memory is not None and not memory.compiled else None
    model = inner(root) if root is not None else None
    if model is not None and not isinstance(model, sys.modules["torch"].jit.ScriptModule):
        forwards.call(model, called, unless_measured)


def inner(root):
    """Return the modules that compute without waiting for other ranks: where all is sharded,
    or ranks are of several kinds, there is none. DistributedDataParallel's own forward waits
    for other ranks to have their buffers."""
    kind = sys.modules["torch"].nn.parallel.DistributedDataParallel
    for module in root.modules():
        if isinstance(module, kind):
            return module.module
        if type(module).__name__ == "DeepSpeedEngine":
            return module
    return None


def unless_measured(follow):
    """Return what makes the calls of the model: those of steps that are not measured go straight to it."""
    def call(model, plain, args, kwargs):
        pace = state.get("pace")
        if pace is None or pace.timing is None:
            return plain(model, *args, **kwargs)
        return follow(model, plain, args, kwargs)

    return call


def called(model, plain, args, kwargs):
    pace = state["pace"]
    if not model.training or not sys.modules["torch"].is_grad_enabled() or state["compiling"]():
        return plain(model, *args, **kwargs)
    return pace.calls(plain, model, args, kwargs)


def follow_loaders():
    """Measures how long the thread that trains waits for DataLoaders."""
    def __next__(own, self):
        pace = state.get("pace")
        return own(self) if pace is None or pace.timing is None else pace.draws(own, self)

    wrapping.replace(sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter, "__next__", __next__)


@process.guarded
def tell(what):
    """Calls a method of the pace, where there is one."""
    pace = state.get("pace")
    if pace is not None:
        getattr(pace, what)()


def own():
    """Return what Pace.own does."""
    pace = state.get("pace")
    return pace.own() if pace is not None else (0.0, 0.0)
