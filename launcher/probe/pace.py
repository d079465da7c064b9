# A rank's own part of its steps: how long it waits for data, and how long its forward pass
# takes. Ranks that wait for each other in each step are all as slow as the slowest; this
# tells which that is. Nothing here waits for the device: of one call a second two events are
# recorded, and asked a second later.
import collections
import sys
import threading
import time

process = load("process")

KEPT = 16  # steps, and calls, of which the middle one counts
PAUSE = 1.0  # seconds between two calls that are timed

state = {}


class Pace:
    """What one rank takes for itself. Where it is one of several, and trains."""

    def __init__(self, meter):
        self.meter, self.thread = meter, threading.get_ident()
        self.waited, self.waits = 0.0, collections.deque(maxlen=KEPT)  # for data since the last step, and in those before
        self.called, self.calls = 0, collections.deque(maxlen=KEPT)  # of the model
        self.due, self.first, self.open, self.times = 0.0, None, None, collections.deque(maxlen=KEPT)

    def begin(self):
        """Comes before a call of the model in training."""
        self.called, self.first = self.called + 1, None
        now = time.monotonic()
        if now < self.due:
            return
        if self.open is not None:
            took = self.meter.between(*self.open)
            if took <= 0:
                return  # the device has not come so far
            self.times.append(took)
            self.open = None
        self.due, self.first = now + PAUSE, self.meter.timer()

    def end(self):
        if self.first is not None:
            self.open, self.first = (self.first, self.meter.timer()), None

    def step(self):
        """Comes after an optimizer step."""
        self.waits.append(self.waited)
        self.calls.append(self.called)
        self.waited, self.called = 0.0, 0

    def own(self):
        """Gives the seconds of a step that it waits for data, and that its forward passes
        take; 0 is not known."""
        return middle(self.waits), middle(self.times) * middle(self.calls)


def middle(figures):
    return sorted(figures)[len(figures) // 2] if figures else 0


def arm(memory):
    """Begins after the first steps, with what is measured of the root, or None."""
    if "pace" in state or process.number("WORLD_SIZE") < 2:
        return
    state["pace"] = Pace(load("memory").meter())
    follow_loaders()
    root = memory.root() if memory is not None and not memory.compiled else None
    if root is not None:
        follow_calls(inner(root))


def inner(root):
    """Gives what computes: DistributedDataParallel's own forward may wait for other ranks, to
    have their buffers."""
    kind = sys.modules["torch"].nn.parallel.DistributedDataParallel
    while isinstance(root, kind):
        root = root.module
    return root


def follow_calls(model):
    """Times calls of the model in training."""
    kind = type(model)
    torch = sys.modules["torch"]
    if issubclass(kind, torch.jit.ScriptModule):
        return
    compiling, enabled = load("root").compiling(torch), torch.is_grad_enabled

    def called(model, plain, args, kwargs):
        if compiling() or not model.training or not enabled():
            return plain(model, *args, **kwargs)
        tell("begin")
        output = plain(model, *args, **kwargs)
        tell("end")
        return output

    forwards = load("forwards")
    forwards.add(forwards.layer(kind, "__call__")[0], model, called)


def follow_loaders():
    """Measures how long the thread that trains waits for DataLoaders."""
    Iter = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
    plain, clock, thread = Iter.__next__, time.perf_counter, threading.get_ident

    def __next__(self):
        pace = state.get("pace")
        if pace is None or thread() != pace.thread:
            return plain(self)
        before, began = pace.waited, clock()
        try:
            return plain(self)
        finally:
            pace.waited = before + clock() - began  # with what a loader inside this one took

    Iter.__next__ = load("imports").like(plain, __next__)


def tell(what):
    """Tells the pace, and ends it where that goes wrong."""
    pace = state.get("pace")
    if pace is None:
        return
    try:
        getattr(pace, what)()
    except Exception as e:
        state["pace"] = None
        process.problem("pace", e)


def own():
    """Gives what Pace.own does."""
    pace = state.get("pace")
    return pace.own() if pace is not None else (0.0, 0.0)
