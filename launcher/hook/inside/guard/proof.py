# The proof that a pass may be repeated: its forward runs twice from the same state, and both runs give the same outputs
# and leave the same state. Otherwise it changes something that was not seen, and the steps after it would differ. What
# the functions that it calls refer to is found by following the first run.
import contextlib
import contextvars
import gc
import io
import os
import sys
import types

import torch

from ..base import wall
from ..model import kinds, places, reach, rootstate
from ..remedies import checkpointing, compared, segments

MOST = 2000  # objects whose methods the forward calls
EQUAL = {16: 1e-3, 32: 1e-6, 64: 1e-12}  # how far two runs of kernels that are not deterministic may be apart, by the bits of a number


class Proof:
    """Two runs of the forward of some calls."""

    def __init__(self, guard, calls):
        self.guard, self.calls, self.trace = guard, calls, Trace()
        self.sketches, self.before, self.known = [], [], set()

    def first(self, names):
        """Run the calls once, and leave nothing of that. Return None, or the exception."""
        measure = segments.Measured(self.guard.root()) if names == {checkpointing.Recompute.name} else contextlib.nullcontext()
        why = self.run(names, measure)
        if why is not None and getattr(measure, "differentiates", False):
            self.trace, self.sketches = Trace(), []
            return self.run(names, contextlib.nullcontext())
        if why is None:
            self.guard.saves(measure)
        return why

    def run(self, names, measure):
        """Run the calls in a context that may measure what they save."""
        guard = self.guard
        guard.busy = "forward"
        try:
            before = self.read()
            with self.trace, measure:
                outputs = guard.outputs_again(self.calls, names, False)
            self.sketches = [sketch(output) for output in outputs]
            del outputs
            self.unchanged(before)
            self.seen()
        except BaseException as e:
            return e
        finally:
            guard.busy = ""
        return None

    def read(self):
        """Return all that is in reach of the model, with its values."""
        before = [(place, place.read(places.CLOSELY)) for place in self.places(self.guard.known.modules)]
        self.known = {place.key for place, _ in before}
        return before

    def places(self, modules, functions=(), objects=()):
        walk = reach.Walk(modules, self.guard.known.norms, functions, objects)
        if walk.unreadable():
            raise rootstate.Unrepeatable(rootstate.held(walk.unreadable()))
        # Random numbers are put back after a run, as is all that is noted.
        return [place for place in walk.list() if place.kind != "random"]

    def unchanged(self, before):
        for place, value in before:
            if isinstance(value, places.Kept) and value.blind():
                raise rootstate.Unrepeatable("%s is too large to be compared" % place.words())
            # A tensor of a graph that is gone was replaced by the forward, which does so again.
            if place.changed(value) and not place.matches(value) and not isinstance(place.take(), places.Gone):
                raise rootstate.Unrepeatable("%s changes in each run of the forward pass, and was not put back" % place.words())

    def seen(self):
        """Look at what the first run was seen to call, before the second."""
        trace = self.trace
        if trace.writes:
            raise rootstate.Unrepeatable("the forward pass writes output (%s)" % trace.writes)
        found = self.places(self.guard.known.modules, trace.functions(), trace.objects)
        self.before = [(place, place.read(places.CLOSELY)) for place in found if place.key not in self.known]

    def second(self, outputs):
        """Raises where the second run, with these outputs, differs from the first."""
        for first, output in zip(self.sketches, outputs):
            why = difference(first, sketch(output))
            if why:
                raise rootstate.Unrepeatable("two runs of the forward pass from the same state differ: %s" % why)
        self.unchanged(self.before)


def sketch(outputs):
    return compared.sketch([t if t.is_floating_point() or t.is_complex() else t.float() for t in outputs])


def difference(first, second):
    """Return how the outputs of two runs differ, "" for not at all."""
    if [one[:2] for one in first] != [other[:2] for other in second]:
        return "an output has another shape or type"
    if all(torch.allclose(x, y, rtol=0, atol=0, equal_nan=True) for a, b in zip(first, second) for x, y in zip(a[2:], b[2:])):
        return ""
    exact = torch.are_deterministic_algorithms_enabled() or any(one[2].device.type == "cpu" for one in first)
    return "an output is another" if exact else compared.difference(first, second, EQUAL)


# What a run writes to, or reads from the world.
WRITERS = frozenset(("print", "input", "open"))
SYSTEM = frozenset(("write", "writev", "pwrite", "open", "mkdir", "remove", "unlink", "rename", "replace", "send", "sendall", "sendto", "system", "putenv", "unsetenv"))


class Environment:
    """The variables of the environment and of contexts: a run must not change them."""

    def __init__(self):
        self.variables = dict(getattr(os.environ, "_data", os.environ))
        self.context = dict(contextvars.copy_context().items())

    def check(self):
        now = Environment()
        if now.variables != self.variables:
            raise rootstate.Unrepeatable("the forward pass changes the environment")
        if now.context.keys() != self.context.keys() or any(value is not self.context[key] for key, value in now.context.items()):
            raise rootstate.Unrepeatable("the forward pass changes a context variable")


class Trace:
    """Notes which functions of the job run, on which objects, and whether something is written outside."""

    def __init__(self):
        self.codes: set = set()
        self.objects: list = []
        self.known: set = set()
        self.writes, self.environment, self.previous = "", None, None

    def __enter__(self):
        self.environment = Environment()
        self.previous = sys.getprofile()
        sys.setprofile(self.event)
        return self

    def __exit__(self, *exception):
        sys.setprofile(self.previous)
        if exception[0] is None:
            self.environment.check()

    def event(self, frame, event, arg):
        if event == "call":
            code = frame.f_code
            if code in self.codes and len(self.objects) >= MOST or is_foreign(frame):
                return
            self.codes.add(code)
            if code.co_argcount and len(self.objects) < MOST:
                value = frame.f_locals.get(code.co_varnames[0])
                if kinds.kind(value) == kinds.OBJECT and id(value) not in self.known:
                    self.known.add(id(value))
                    self.objects.append(value)
        elif event == "c_call" and not self.writes and writes(arg) and not frame.f_code.co_filename.endswith(("warnings.py", "linecache.py", "tokenize.py")):
            if not frame.f_code.co_filename.startswith(wall.HERE):
                self.writes = "%s in %s:%d" % (arg.__name__, os.path.basename(frame.f_code.co_filename), frame.f_lineno)

    def functions(self):
        """Return the functions that ran. Raises where one of them is a generator that goes on."""
        found = []
        for each in gc.get_objects():
            t = type(each)
            if t is types.FunctionType:
                if each.__code__ in self.codes:
                    found.append(each)
            elif t is types.GeneratorType and each.gi_code in self.codes and each.gi_frame is not None:
                raise rootstate.Unrepeatable("a generator, %s, goes on from call to call" % each.__name__)
        return found


def is_foreign(frame):
    code = frame.f_code
    return kinds.is_library(frame.f_globals.get("__name__", "")) or code.co_filename.startswith((wall.HERE, kinds.STANDARD, "<")) and "-packages" not in code.co_filename


def writes(function):
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        return owner.__name__ == "builtins" and function.__name__ in WRITERS or owner.__name__ == "posix" and function.__name__ in SYSTEM
    return isinstance(owner, io.IOBase) and function.__name__ in ("write", "writelines", "truncate")
