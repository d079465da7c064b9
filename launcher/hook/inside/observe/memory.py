# The measurements of the process's memory: memory.json, whose keys are those of
# strategy/memory.Measurement. It measures in detail the first forward and the first three
# optimizer steps; from then on each call of the root is one comparison, and a call with a
# longer input than all before has its step measured.
import os
import sys
import threading
import time
import typing
import weakref

from ..base import meters, process, ranout, report, session, wall
from ..model import blocks, figures, root as root_part, rootcalls
from . import inputs, launches, lightning, loaders, marks, optimizers, precision, twice


ARMED = 3  # optimizer steps
TIMES = 64  # steps whose times count
LOOKS = (8, 32)  # steps after which the report is written again


class Memory:
    """Follows the root through its calls and optimizer steps."""

    def __init__(self, root, model, compiled):
        self.torch, self.root, self.compiled = sys.modules["torch"], weakref.ref(root), compiled
        self.meter = meters.of(device(self.torch, root))
        self.peaks = meters.Peaks(self.meter)
        self.said = {"rank": process.number("RANK"), "model": figures.of(root, model, compiled)}
        self.phase, self.armed, self.marks, self.later_marks, self.made = "load", not compiled, None, None, False
        self.n, self.calls, self.ended, self.times, self.longest = 0, 0, None, [], 0
        self.step, self.part, self.optimizers, self.timers = {}, 0, {}, {}
        self.enabled, self.largest = self.torch.is_grad_enabled, inputs.largest
        self.evaluations, self.evaluated, self.draws = 0, 0, None
        self.oomed, self.raised, self.told, self.thread = None, None, False, threading.main_thread().ident
        self.first_gradient: list = []  # of the first step, weakly
        self.launches = self.launching()

    def launching(self):
        """Return what follows the launches on a device; the CPU's are the work itself."""
        return launches.Launches(self.meter) if self.armed and self.meter.resets else None

    # The root's calls. The first one comes to opens, which is where its blocks are followed.

    def opens(self, args, kwargs):
        own = inputs.largest(args, kwargs)
        self.said.update(start_bytes=self.peaks.take()[0], batch=inputs.samples(args, kwargs), autocast=self.autocast(), calls=0)
        self.said["start_state_bytes"] = sum(optimizers.states(o, self.meter) for o in optimizers.alive() if optimizers.trains(o, self.root()))
        others = optimizers.others(self.root())
        if others:
            self.said["others_bytes"] = others
        if lightning.lingers():
            self.said["gradients_linger"] = True
        if own is not None:
            self.said.update(shape=[int(n) for n in own.shape], longest=int(inputs.elements(own.shape)))
        self.step, self.part, self.calls, self.made = {}, 0, 0, False
        self.draws = loaders.hook.get("root")
        if self.armed:
            self.launches = self.launching()
            self.marks = marks.Marks(blocks.find(self.root()), self.meter.held, self.inside, self.launches)
        self.counts(own)

    def begin(self, args, kwargs):
        self.noted = False
        if not (self.root().training and self.enabled()):
            self.phase = "evaluation"
            for each in session.current.when_phase_changes:
                each("eval")
            self.evaluates(args, kwargs)
            return
        self.phase = "forward"
        if self.ended is not None and self.calls:
            self.close()
            if self.n == 1 and self.gradient() is not None:
                self.said["gradients_linger"] = True
        if self.n == 0 and (not self.made or self.oomed or self.raised or loaders.hook.get("root") is not self.draws):
            # The first forward failed, and the job caught that; or it was only tried.
            self.oomed = self.raised = None
            self.opens(args, kwargs)
            return
        if not self.armed:
            alone = args[0] if len(args) == 1 and not kwargs else None
            shape = getattr(alone, "shape", None)
            if shape is not None and shape == self.usual:
                self.calls += 1
                return
            own = self.largest(args, kwargs)
            if own is None or inputs.elements(own.shape) <= self.longest:
                self.calls, self.usual = self.calls + 1, shape
                return
            self.arm()
        else:
            own = self.largest(args, kwargs)
        self.counts(own)

    def counts(self, own):
        """Begins a call in training."""
        self.calls += 1
        if self.n == 0:
            self.said["calls"] = self.calls
        if not self.armed:
            return
        self.part += 1
        if own is not None:
            size = inputs.elements(own.shape)
            self.step["longest"] = max(self.step.get("longest", 0), size)
            self.longest = max(self.longest, size)
        peak = self.peaks.take()[1]
        if self.part == 1:
            self.timers = {"first": self.meter.timer()}
        elif self.part == 2:
            self.step["micro_bytes"] = peak
        else:
            self.later(peak)
        if self.launches is not None and self.launches.wanted():
            self.launch()

    def launch(self):
        lists = blocks.find(self.root())
        if self.marks is None:
            self.later_marks = marks.Marks(lists, lambda: 0, lambda: None, self.launches)
        self.launches.begin(lists)

    def launched(self):
        """Return the times of the launches, {} if none are known."""
        return self.launches is not None and self.launches.report() or {}

    def later(self, peak):
        self.step["later_peak_bytes"] = max(self.step.get("later_peak_bytes", 0), peak)

    def end(self, output=None):
        if self.phase == "evaluation":
            self.phase = "loss" if self.calls else "between"
            self.evaluation_ends()
            return
        self.phase = "loss"
        if self.launches is not None and self.launches.open is not None:
            self.launches.end(output)
        if self.armed:
            held, peak = self.peaks.take()
            if self.part == 1:
                self.step.update(forward_bytes=held, forward_peak_bytes=peak)
            else:
                self.later(peak)
        if self.marks is not None or self.later_marks is not None:
            self.followed()
        if not self.made:
            self.made = True
            self.save()

    def failed(self):
        """Called when an exception leaves the root, while its memory is still allocated."""
        if not self.noted:
            self.failing(self.phase)

    def failing(self, phase):
        """Called when memory ran out in a pass that may be repeated: what it holds is let go then."""
        self.most = self.peaks.most
        self.raised, self.noted = {"instant": phase, "allocated": self.rise()}, True
        self.followed()

    def repeated(self, requested=0):
        """Called when a pass was repeated: the peak of the failed one is a limit and no measurement,
        and this step none like the others. requested are the bytes that it did not get, 0 where it
        did not fail. Returns what was held then, 0 where that is not known."""
        seen = self.oomed or self.raised
        held = holding(self.meter, seen["allocated"], requested) if seen and requested else 0
        if seen and requested and self.n < ARMED and "ran_out" not in self.said:
            self.said["ran_out"] = {
                "failed": seen["instant"], "allocated_bytes": seen["allocated"], "requested_bytes": requested, "marks": self.said.get("marks"),
                "launch": self.launched(),
            }
        self.oomed, self.raised, self.spoilt, self.step = None, None, True, {}
        self.launches = self.launching()
        self.said.pop("marks", None)
        self.meter.renew()
        self.peaks.take()
        self.peaks.most = self.most
        self.save()
        return held

    def rise(self):
        """Return the peak of memory since the last call, or the memory now."""
        held, peak = self.peaks.take()
        return max(held, peak)

    def followed(self):
        """Called when a forward ends."""
        if self.marks is not None:
            self.said["marks"], self.marks = self.marks.over(), None
        if self.later_marks is not None:
            self.later_marks.over()
            self.later_marks = None

    def inside(self):
        """Called when the first block begins: a model may enter autocast by itself, as
        Accelerate's forward does."""
        self.said["autocast"] = self.said.get("autocast") or self.autocast()

    def passes(self):
        """Called before a backward pass."""
        if self.n == 0 and "calls_together" not in self.said:
            self.said["calls_together"] = self.calls
            if any(map(optimizers.zeroes, optimizers.alive())):
                self.said["gradients_kept"] = True  # until the second step shows it

    def gradient(self):
        """Return a gradient of the root, None where there is none."""
        root = self.root()
        return next((p.grad for p in root.parameters() if p.grad is not None), None) if root is not None else None

    def gradients(self):
        """Looks in the first two steps whether the gradients of one are the tensors of the other."""
        own = self.gradient()
        if self.n == 1 and self.first_gradient:
            self.said["gradients_kept"] = own is not None and self.first_gradient[0]() is own
        self.first_gradient = [weakref.ref(own)] if self.n == 0 and own is not None else []

    def differentiates(self, how):
        """Called when the job turns out to differentiate twice."""
        self.said["twice"] = how
        self.save()

    def autocast(self):
        found = precision.cast(self.torch, {"cuda", "cpu"} if self.meter.resets else {"cpu"})
        return {"bf16": "bfloat16", "fp16": "float16"}.get(found, "")

    def evaluates(self, args, kwargs):
        """Measures the first calls without gradients, and those that are longer."""
        own = inputs.largest(args, kwargs)
        size = 0 if own is None else inputs.elements(own.shape)
        self.evaluations += 1
        self.looks = self.evaluations <= 3 or size > self.evaluated
        if self.looks:
            self.evaluated = max(self.evaluated, size)
            self.batch = inputs.samples(args, kwargs)
            self.peaks.take()

    def evaluation_ends(self):
        if not self.looks:
            return
        held, peak = self.peaks.take()
        if max(held, peak) > self.said.get("evaluation_bytes", 0):
            self.said.update(evaluation_bytes=max(held, peak), evaluation_batch=self.batch)
            self.save()

    # Optimizer steps. Several calls of an optimizer without a call of the root between them
    # are one step.

    def mine(self, optimizer):
        """Return whether an optimizer is one of the root."""
        reference, answer = self.optimizers.get(id(optimizer), (None, False))
        if reference is None or reference() is not optimizer:
            answer = self.trained_by(optimizer)
            self.optimizers[id(optimizer)] = weakref.ref(optimizer), answer
        return answer

    def trained_by(self, optimizer):
        """Return whether an optimizer has a parameter of the root; where none has, as behind
        frameworks that hand on copies, it is any."""
        root = self.root()
        if root is None:
            return False
        return optimizers.trains(optimizer, root) or not any(optimizers.trains(o, root) for o in optimizers.alive())

    def before(self, optimizer):
        if not self.mine(optimizer):
            return
        self.phase = "optimizer"
        if not self.armed or "before_bytes" in self.step:
            return
        self.timers["optimizer"] = self.meter.timer()
        held, peak = self.peaks.take()
        self.step.update(before_bytes=held, backward_peak_bytes=peak)
        self.gradients()
        if self.n == 0:
            self.said.update(optimizers.of(optimizer))

    def after(self, optimizer):
        if not self.mine(optimizer):
            return
        self.phase, self.oomed, self.raised = "between", None, None
        if self.compiled:
            self.calls = 1
        if self.ended is None or self.calls:
            self.now = time.perf_counter()
        self.ended = self.now
        if self.armed:
            held, peak = self.peaks.take()
            self.step.update(after_bytes=held, optimizer_peak_bytes=max(peak, self.step.get("optimizer_peak_bytes", 0)))
            if self.n == 0:
                self.said["state_bytes"] = optimizers.states(optimizer, self.meter)
        if self.compiled:
            self.close()

    def quiet(self):
        """Called after a step. Returns whether the next ones may only be counted."""
        if self.armed or self.compiled or self.n < ARMED:
            return False
        if self.ended is not None and self.calls:
            self.close()
        return True

    def looks_again(self, steps, seen):
        """Called after a step, when so many were only counted; seen: whether this one was not."""
        self.n += steps
        if not seen:
            self.last = time.perf_counter()

    def close(self):
        """Ends a step: at the next call of the root, or at the program's end."""
        self.n += 1
        if self.n >= ARMED and self.last is not None and not self.spoilt:
            self.times = self.times[1 - TIMES:] + [self.ended - self.last]
        self.last, self.ended, self.calls, step = self.ended, None, 0, self.step
        self.step, self.part = {}, 0
        if self.armed and step and not self.spoilt and self.alike(sorted(session.current.active)):
            self.keep(step)
        self.spoilt, session.current.active = False, frozenset()
        if self.n == ARMED or self.n > ARMED and self.armed:
            self.armed = False
            twice.leave()
        if self.n in (1, ARMED) or self.n in LOOKS or self.n > ARMED and step:
            self.save()

    last: typing.Any = None
    usual = None  # the shape of the only input of a call that was not longer than all before
    spoilt = noted = False
    most = 0  # the peak before the pass that ran out of memory

    def alike(self, remedies):
        """Return whether the same remedies in place were on in all steps that are kept."""
        if not any(key in self.said for key in ("first", "second", "longer")):
            self.said["in_place"] = remedies
        return remedies == self.said["in_place"]

    def keep(self, step):
        key = {1: "first", 2: "second"}.get(self.n, "longer")
        known = max([self.said.get(k, {}).get("longest", 0) for k in ("first", "second", "longer")])
        if self.n <= 2 or step.get("longest", 0) > known:
            self.said[key] = step
        calls, timers = self.said.get("calls", 0), self.timers
        if self.n <= ARMED and calls and "first" in timers and "optimizer" in timers:
            self.timed = timers["first"], timers["optimizer"], calls

    timed: tuple = ()

    def arm(self):
        self.armed = True
        for each in session.current.when_measured:
            each()

    # The report.

    def save(self, failed=None):
        told = dict(self.said, pid=os.getpid(), time=time.time(), steps=self.n)
        if failed:
            told.update(failed)
        self.peaks.most = max(self.peaks.most, self.meter.read()[1])
        told.update(self.meter.whole(), peak_bytes=self.peaks.most if self.meter.known() else 0, host_bytes=meters.resident())
        if self.times:
            told["step_seconds"] = sorted(self.times)[len(self.times) // 2]
        told["launch"] = self.launched()
        if self.timed:
            told["call_seconds"] = self.meter.between(*self.timed[:2]) / self.timed[2]
        write(told)


def write(told):
    if session.current.speaks and process.here():
        report.save(process.file("memory.json"), told)


def device(torch, root):
    """Return the device that the root trains on: its parameters may wait in host memory."""
    found = next(root.parameters()).device
    cuda = torch.cuda
    if found.type != "cuda" and cuda.is_available() and cuda.is_initialized() and cuda.memory_allocated():
        return torch.device("cuda", cuda.current_device())
    return found


def kept(function):
    """Keeps what goes wrong from the job, and then measures no more."""
    def call(*args):
        memory = session.current.memory
        if memory is None:  # a fork is kept away by those who call
            return None
        try:
            return function(memory, *args)
        except Exception as e:
            session.current.memory = None  # another thread may have been here
            wall.alone(over)(memory)
            wall.failed(e)
            return None

    return call


def over(memory):
    """Removes the listeners."""
    twice.leave()
    rootcalls.leave(hooks)
    memory.followed()


class Hooks:
    """Receives the root's calls."""

    begin, end, failed = (staticmethod(kept(getattr(Memory, name))) for name in ("begin", "end", "failed"))


hooks = Hooks()
before, after, failing, repeated, passes = (kept(each) for each in (Memory.before, Memory.after, Memory.failing, Memory.repeated, Memory.passes))


def first(root, model, compiled, args, kwargs):
    """Begins before the root's first forward."""
    torch = sys.modules["torch"]
    if device(torch, root).type not in ("cuda", "cpu"):
        return
    memory = Memory(root, model, compiled)
    session.current.memory = memory
    if memory.armed:
        process.guarded(twice.arm)(weakref.ref(root), memory.differentiates)
    kept(Memory.opens)(args, kwargs)
    attach(torch)


def armed():
    """Return whether the optimizer's steps are looked at closely."""
    memory = session.current.memory
    return memory is not None and memory.armed


def quiet():
    """Called after a step. Returns whether the next ones may only be counted."""
    return session.current.memory is None or bool(kept(Memory.quiet)())


def looks_again(steps, seen):
    kept(Memory.looks_again)(steps, seen)


def attach(torch):
    """Listens to the allocator's own word that memory ran out, which comes before anything
    that the failing code holds is given back."""
    hook = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if hook is not None and session.current.memory.meter.resets:
        hook(wall.alone(observed))


def observed(device, wanted, allowed, free):
    """Called by the allocator when it refuses. That counts if the job ends by it."""
    try:
        memory = session.current.memory
        if memory is not None and process.here() and device == memory.meter.device and not session.current.repeating and not session.current.asked:
            memory.oomed = {"instant": running(memory), "allocated": memory.meter.read()[0], "requested": wanted}
            if allowed < memory.meter.total():
                memory.oomed["allowed"] = allowed
            memory.save(words(memory))
    except Exception:
        pass


def running(memory):
    """Return the phase that the job's main thread is in: the backward pass runs in another.

    No name may refer to a frame here: it may be this one, which would then hold itself, its
    callers, and with them the tensors of a job that catches the exception and continues.
    """
    return named(memory, rootcalls.phase_in(ranout.frames_from(sys._current_frames().get(memory.thread))))


def named(memory, instant):
    if instant == "call":
        return "evaluation" if memory.phase == "evaluation" else "forward"
    if instant:
        return instant
    here = session.current
    return ("loss" if here.quiet and here.called else "forward") if memory.phase == "between" else memory.phase


def words(memory):
    found = {"failed": memory.oomed["instant"], "allocated_bytes": memory.oomed["allocated"], "requested_bytes": memory.oomed.get("requested", 0)}
    if "allowed" in memory.oomed:
        found["allowed_bytes"] = memory.oomed["allowed"]
    if memory.marks is not None:
        found["marks"] = [told for told in memory.marks.lists if told["bytes"]]
    if memory.armed and memory.step and not memory.spoilt and memory.alike(sorted(session.current.active)):  # as far as it came
        found[{0: "first", 1: "second"}.get(memory.n, "longer")] = memory.step
    return found


def last(value, trace):
    """Called with the exception that ends the process."""
    why = ranout.reason(value)
    if why is None:
        return
    memory = session.current.memory
    if memory is None:
        unseen(why, trace)
        return
    if not process.here():
        return
    instant = named(memory, rootcalls.phase_in(ranout.frames_of(why.__traceback__ or trace)))
    known = next((seen for seen in (memory.oomed, memory.raised) if seen and seen["instant"] == instant), None)
    known = known or {"instant": instant, "allocated": memory.rise()}
    raised = ranout.figure(ranout.SIZE, why)
    memory.oomed = dict({"requested": raised}, **known)
    if abs(raised - memory.oomed["requested"]) * 100 > raised > 0:
        memory.oomed["requested"] = raised  # the allocator last refused another one, which was caught
    allowed = ranout.figure(ranout.ALLOWED, why)
    if allowed and "allowed" not in memory.oomed:
        memory.oomed["allowed"] = allowed
    memory.oomed["allocated"] = holding(memory.meter, **memory.oomed)
    memory.told = True
    if memory.ended is not None and memory.calls:
        memory.close()
    memory.save(words(memory))


def holding(meter, allocated, requested, **others):
    """Return the bytes that were held when memory ran out. On the CPU some were given back since, but
    the limit counts exactly: so much was held at least."""
    return max(allocated, meter.limit - requested) if not meter.resets and meter.limit else allocated


def meter():
    """Return the meter of what is trained: the root's, or before one was seen that of the
    device in use."""
    memory, torch = session.current.memory, sys.modules["torch"]
    if memory is not None:
        return memory.meter
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return meters.of(torch.device("cuda", torch.cuda.current_device()) if cuda else None)


def unseen(why, trace):
    """Reports that memory ran out before a model was called in training."""
    own = meter()
    held, peak = own.read()
    requested = ranout.figure(ranout.SIZE, why)
    told = dict(own.whole(), rank=process.number("RANK"), pid=os.getpid(), time=time.time(), peak_bytes=peak, failed="load")
    told.update(allocated_bytes=holding(own, held, requested), requested_bytes=requested, **evaluated(ranout.frames_of(why.__traceback__ or trace)))
    write(told)


def evaluated(frames):
    """Return the phase and the samples of an evaluation that failed before the first call in training;
    {} where the frames of the error are in none."""
    for frame in reversed(frames):
        found = frame.f_locals
        if root_part.is_call(frame) and root_part.is_root(found["self"]):
            return {"failed": "evaluation", "evaluation_batch": inputs.samples(found["args"], found["kwargs"])}
    return {}


def end():
    """Called when the program ends."""
    memory = session.current.memory
    if memory is not None and process.here():
        wall.alone(closing)(memory)


def closing(memory):
    value = sys.exc_info()[1]  # that of a child of multiprocessing, which has no excepthook
    if value is not None and not memory.told:
        last(value, value.__traceback__)
    if memory.told:
        return
    if memory.ended is not None and memory.calls:
        memory.close()
    memory.save()
