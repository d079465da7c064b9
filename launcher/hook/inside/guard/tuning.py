# After a step was done again in place: the remedies are on as far as is needed, and in the fastest of the exact ways.
# tuner.py decides; here its figures are measured, its states are used, and what it tried is reported.
import time
import typing
import weakref

import torch

from ..base import meters, process, room, session, wall
from ..observe import inputs
from ..remedies import losscalls
from . import tuner

OTHERS = 64  # steps without the remedies, one after the other, after which no more are followed
TOGETHER = 16  # calls of the model in a step whose shapes are compared


class Loss:
    """The loss in parts, which has no remedy among those of the guard."""

    name, fits = "loss-parts", False

    def degree(self):
        return int(losscalls.state["least"] is not None and losscalls.state["least"] < float("inf"))

    def degrees(self, above):
        return losscalls.degrees()

    def use(self, degree):
        losscalls.state["least"] = losscalls.state["largest"] // 4 if degree else float("inf")

    def describe(self, degree):
        return {"loss_parts": bool(degree)}


class Tuning:
    """Follows the steps of one guard's root after a rescue."""

    def __init__(self, guard):
        self.guard: typing.Any = weakref.proxy(guard)
        self.parts: list = []
        self.tuner: typing.Any = None
        self.entry: typing.Any = None
        self.rows: list = []  # of a tuner before, which had other remedies
        self.spoilt, self.emptied, self.retries = True, False, 0
        self.began, self.others = None, 0
        self.forget()
        session.current.when_repeated.append(self.repeated)

    # What comes from others.

    def repeated(self, entry):
        """A pass was done again, with a remedy that is on further than before."""
        if entry["phase"] == "optimizer":
            return
        self.spoilt, self.entry, self.others = True, entry, 0
        if self.tuner is not None:
            now = tuple(part.degree() for part in self.parts)
            if now != self.tuner.state:
                self.tuner.fails(now)
                self.report()
            if {part.name for part in self.parts} != {part.name for part in self.all() if part.degrees(1)}:
                self.rows, self.tuner = self.tuner.rows, None  # another remedy is on
        self.listen()

    def listen(self):
        self.guard.tuning = self
        if self.stepped not in session.current.when_stepped:
            session.current.when_stepped.append(self.stepped)

    def leave(self):
        """Follow no more steps, until inputs grow or memory runs out again."""
        self.guard.tuning = None
        session.current.when_stepped = [each for each in session.current.when_stepped if each != self.stepped]

    def forget(self):
        """Begin a step."""
        self.size, self.shape, self.samples, self.names = (0, 0), [], 0, set()

    def grew(self):
        """The inputs of a call are larger than all before."""
        if self.tuner is not None:
            self.spoilt = True
            self.listen()

    def called(self, call, names):
        """A call of the root begins, with remedies on."""
        self.names |= names
        self.size = max(self.size[0], call.size), max(self.size[1], call.longest)
        self.samples += inputs.samples(tuple(call.args), call.kwargs)
        if len(self.shape) < TOGETHER:
            self.shape.append(tuple(t.shape for t in call.given))

    def stepped(self, n):
        """An optimizer step has ended."""
        if len(self.guard.known.devices) > 1:
            self.leave()
            return
        wall.alone(self.step)()

    # The measurement of a step.

    def device(self):
        return self.guard.known.devices[0] if self.guard.known.devices else torch.device("cpu")

    def meter(self):
        return meters.of(self.device())

    def step(self):
        meter, device = self.meter(), self.device()
        if meter.resets:
            torch.cuda.synchronize(device)
        now, held, peak, retries = time.perf_counter(), meter.read()[0], meter.most(), meter.now()[4]
        seconds = None if self.began is None else (now - self.began) / max(self.samples, 1)
        shape, size, grown = tuple(self.shape), self.size, retries - self.retries
        on = all(part.name in self.names for part in self.guard.remedies if part.is_used())
        self.others = 0 if on else self.others + 1
        if on and shape and not self.spoilt and self.began is not None:
            self.ended(shape, size, seconds, peak, held, room.free(device), grown)
        elif self.others > OTHERS:
            self.leave()
        self.spoilt, self.retries = False, retries
        self.forget()
        if session.current.memory is not None:
            session.current.memory.peaks.take()  # which keeps the most so far
        self.began = time.perf_counter() if meter.begin() else None

    def ended(self, shape, size, seconds, peak, held, free, retries):
        """A step has ended in which no memory ran out."""
        if free is None:
            self.leave()
            return
        if self.tuner is None and not self.begin(peak - held):
            self.leave()
            return
        before, short = self.tuner.state, False
        if retries > 0 and not self.emptied:
            torch.cuda.empty_cache()  # what is cached has the sizes that were needed before the rescue
            self.emptied = True
        elif retries > 0:
            short = True
        state = self.tuner.step(shape, size, seconds if self.times() else None, peak, held + free, short)
        if state != before:
            self.use(state)
        if short and state == before:
            self.thrashes(retries)
        if state != before or self.tuner.over:
            self.report()
        if self.tuner.over:
            self.leave()

    def times(self):
        """Return whether states are compared by their time: ranks would have to try the same at once."""
        return process.world() <= 1 and session.current.replicas == 1

    # The states.

    def all(self):
        return [*self.guard.remedies, Loss()]

    def begin(self, above):
        """Begin to look for the fastest state; return whether there are several. above: by how many bytes the peak of a
        step exceeds what is held between steps."""
        found = [(part, tuner.Option(part.name, part.degrees(above), part.fits)) for part in self.all()]
        found = [(part, option) for part, option in found if len(option.degrees) > 1]
        self.parts = [part for part, _ in found]
        if not self.parts:
            return False
        options, state = [option for _, option in found], [part.degree() for part in self.parts]
        self.tuner = tuner.Tuner(options, state, self.times(), remaining(), self.rows)
        return True

    def use(self, state):
        for part, degree in zip(self.parts, state):
            if part.degree() != degree:
                part.use(degree)

    # The report.

    def report(self):
        known = {part.name: part for part in self.all()}
        rows = []
        for row in self.tuner.rows:
            found = {name: row[name] for name in ("steps", "seconds", "peak_bytes", "outcome", "kept")}
            found["elements"] = row["size"]
            for name, degree in row["state"].items():
                found.update(known[name].describe(degree))
            rows.append(found)
        if self.entry is not None:
            self.entry["trials"] = rows
            process.save()

    def thrashes(self, retries):
        """The allocator has to search for memory where as little is held as can be."""
        told = process.told.setdefault("pressure", {"retries": 0, "steps": 0, "step": session.current.steps})
        why = "all that is done in place to need less memory is done already"
        told.update(retries=told["retries"] + retries, steps=told["steps"] + 1, why=why)


def remaining():
    """Return how many steps the job will still make, None where that is not known."""
    for ask in session.current.sources:
        step, steps, _ = wall.alone(ask)() or (None, None, None)
        if step and steps:
            return max(int(steps) - int(step), 0)
    return None
