# Optimizer steps: they are counted, written to the file steps, and the first one is where a
# rank waits for the others if gpurun has changed its batch.
import atexit
import functools
import os
import sys
import time
import types
import weakref

from ..base import ends, gate, process, rank, session, wall, words
from ..model import exclusions, forwards, root as root_part, rootcalls
from . import backward, batches, calls, changes, cycles as cycles_part, loaders, memory, microbatches, optimizers, pace, precision, snapshot, switches


CLOSELY = 32  # steps until which each is looked at
EACH = 13  # of so many later steps one is, where they are alike: few things happen every 13th step

count: dict = {}  # by the optimizer's id
clock: dict = {"written": 0, "base": 0, "pid": os.getpid(), "peak": 0, "at": 0}
handles: dict = {}


def arm(torch):
    session.current.trains = True  # who makes an optimizer does
    rank.note(process.start["told"]["GPURUN_PROBE_FILE"], "trains")
    module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes its own name for it
    handles.update(compiling=exclusions.recording(torch), compiles=exclusions.compiles(torch))
    os.register_at_fork(after_in_child=forked)
    if hasattr(module, "register_optimizer_step_post_hook"):
        handles["pre"] = module.register_optimizer_step_pre_hook(before)
        handles["post"] = module.register_optimizer_step_post_hook(after)
    session.current.when_phase_changes.append(phase)
    session.current.when_measured.append(listen)
    watch_classes(module.Optimizer)
    follow_saves(torch)
    for each in session.current.when_arming:
        each()
    atexit.register(wall.alone(end))


def follow_saves(torch):
    plain = torch.save

    def saves(own, *args, **kwargs):
        before, at = session.current.phase, session.current.steps
        process.guarded(phase)("save")
        try:
            return own(*args, **kwargs)
        finally:
            if session.current.steps == at:
                process.guarded(phase)(before)

    save = functools.wraps(plain)(wall.wrapped(plain, saves))
    torch.save = save
    if torch.serialization.save is plain:  # a pickle of the function looks for it there
        torch.serialization.save = save


def phase(name):
    """Notes what the process does between two steps: train, eval or save."""
    now = session.current
    if now.phase != name and now.steps and os.getpid() == clock["pid"]:
        now.phase = name
        if "over" in clock:
            pace.tell("spoilt")
        try:
            write()
        except OSError:
            pass  # the folder is gone, or full


def watch_classes(Optimizer):
    """Listens to the making of optimizers. PyTorch before 2.0 has no hook for their steps:
    there each class's own step is wrapped, as PyTorch itself does to profile it."""
    plain = Optimizer.__init__

    def makes(own, self, *args, **kwargs):
        own(self, *args, **kwargs)
        noticed(self)

    @process.guarded
    def noticed(self):
        optimizers.made.append(weakref.ref(self))
        del optimizers.made[:-64]
        for each in session.current.when_made:
            process.guarded(each)(type(self))
        if "post" not in handles:
            wrap(type(self))

    handles["optimizer"] = Optimizer, plain
    Optimizer.__init__ = functools.wraps(plain)(wall.wrapped(plain, makes))


def wrap(kind):
    plain = kind.step
    if getattr(plain, "gpurun", False):
        return
    # Where the class is pickled by value, none of the probe goes along: see forwards.py.
    hooks = forwards.Table(before=before, after=after)

    def step(*args, **kwargs):
        if not hooks:
            return plain(*args, **kwargs)
        changed = hooks["before"](args[0], args, kwargs)
        if changed is not None:
            args, kwargs = changed
        got = plain(*args, **kwargs)
        hooks["after"](args[0], args, kwargs)
        return got

    step = types.FunctionType(step.__code__, getattr(plain, "__globals__", {}), closure=step.__closure__)
    kind.step = functools.wraps(plain)(step)
    kind.step.__dict__["gpurun"] = True


def name(optimizers):
    """Return which optimizer it is, if it is of one kind."""
    kinds = {words.adam(o) for o in optimizers}
    if len(kinds) == 1:
        kind = type(next(iter(optimizers)))
        process.settle("optimizer", kinds.pop(), "%s.%s" % (kind.__module__, kind.__qualname__), process.LOADER)
    elif kinds:
        process.settle("optimizer", None, "", process.LOADER)


def first(root, compiled, args, kwargs):
    """Begins to count the root's calls between steps, and to measure them."""
    renew()
    name([o for o in optimizers.alive() if optimizers.trains(o, root)])
    cycles = cycles_part.cycles
    if not compiled and rootcalls.listen(root, cycles, memory.hooks, batches.first(root, args, kwargs), microbatches.first(root, args, kwargs), changes.first(root, args, kwargs)):
        cycles.start(root)
        changes.tell(optimizers.alive())
        process.guarded(backward.arm)(sys.modules["torch"])


def renew():
    """Begins to count, maybe in a fork. Those of multiprocessing run no atexit functions."""
    util = sys.modules.get("multiprocessing.util")
    if os.getpid() != clock["pid"] and util is not None:
        util.Finalize(None, wall.alone(end), exitpriority=0)
    clock.update(pid=os.getpid(), written=0, peak=0)
    session.current.steps = 0
    clock.pop("meter", None)
    count.clear()


def forked():
    """Runs in each fork: its steps are not those that are counted."""
    session.current.quiet = 0


def before(optimizer, args, kwargs):
    """Runs before each step. torch.compile watches all that is read before it is asked."""
    return None if handles["compiles"]() or session.current.quiet else looks(optimizer, args, kwargs)


@wall.alone
def looks(optimizer, args, kwargs):
    """Runs before each step, until the measuring is over. A step with a closure calls the
    model itself, and so its beginning is after the closure: gives the arguments with
    another one then."""
    if handles["compiling"]():
        return None
    changes.before(optimizer)
    if "over" not in clock or memory.armed():
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if callable(closure):
            closure = closed(optimizer, closure)
            if len(args) > 1:
                return (args[0], closure) + tuple(args[2:]), kwargs
            return args, dict(kwargs, closure=closure)
        begin(optimizer)
    return None


def closed(optimizer, closure):
    begun = []

    def call(own, *args, **kwargs):
        loss = own(*args, **kwargs)
        if not begun:
            begun.append(True)
            begin(optimizer)
        return loss

    return functools.wraps(closure)(wall.wrapped(closure, call))


@wall.alone
def begin(optimizer):
    if os.getpid() != clock["pid"]:
        if root_part.is_known():
            return  # a fork of a process that trains
        renew()
    if "over" not in clock:
        opens(optimizer)
    memory.before(optimizer)


def opens(optimizer):
    """Handles one of the first steps: the report on the job's batches becomes known."""
    process.trains()
    cycles = cycles_part.cycles
    each = process.guarded(microbatches.step)() or []
    n = None
    if "first" not in clock and process.orders().get("batch"):
        n = process.guarded(made_of)(cycles.calls, each, len(optimizers.alive()))
        process.settle("gradient_accumulation_steps", n, "the first optimizer step", process.LOADER)
    process.guarded(backward.step)(cycles.calls, each, len(cycles.optimizers | {id(optimizer)}), n)
    cycles.step(optimizer)
    if "first" not in clock:
        clock["first"] = True
        opening(optimizer)
    if cycles.finished():
        clock["over"] = True
        loaders.disarm()
        backward.leave()
        process.guarded(microbatches.leave)()
        process.guarded(batches.follow)()
        pace.arm(session.current.memory)


def made_of(calls, each, optimizers):
    """Return how many micro batches made the first step, None where that is not certain: after so many calls of the
    root, so many before each backward pass. A batch may have several backward passes, and be drawn ahead."""
    draws, passes = loaders.draws(), len(each)
    if not passes:
        return None
    if draws is None:
        return passes if sum(each) == calls and len(set(each)) == 1 else None
    drawn = (draws, draws - 1) if loaders.ahead() else (draws,)
    fitting = [n for n in drawn if n > 0 and passes % n == 0]
    return fitting[0] if len(fitting) == 1 or fitting and optimizers < 2 else None


def listen():
    """Observes the beginning of the next step, too."""
    if "pre" not in handles and "post" in handles:
        handles["pre"] = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(before)


def opening(optimizer):
    """Runs before the first step: all parts of the job exist by now."""
    try:
        look(optimizer)
    finally:
        try:  # whatever goes wrong in the probe, no rank trains with a batch that others lack
            gate.wait()
        finally:
            process.told["stepping"] = True
            ends.state["code"] = 0  # who called sys.exit before caught it
    process.save()


def look(optimizer):
    """Reports the facts known by now, and removes the hooks that found them."""
    Optimizer, plain = handles["optimizer"]
    if "post" in handles and getattr(Optimizer.__init__, "__wrapped__", None) is plain:
        Optimizer.__init__ = plain
    name([optimizer])
    loaders.over()
    precision.leave()
    switches.leave()
    calls.settle_all()
    if not root_part.is_known() and process.orders().get("hooks"):
        process.note("failed", dict.fromkeys(process.orders().get("turn") or {}, "no model was seen to be called before the first optimizer step"))
    clock["base"] = base()
    for each in session.current.when_opening:
        each()


def after(optimizer, args, kwargs):
    """Runs after each step."""
    if handles["compiles"]():
        return
    here = session.current
    quiet = here.quiet
    if quiet <= 1 and not follows(optimizer, quiet):
        return
    try:
        key = id(optimizer)
        n = count[key] = count.get(key, 0) + 1
        if n <= here.steps:
            return
        turned, here.phase = here.phase != "train", "train"
        here.steps, clock["at"] = n, time.time()
        if pace.state:
            pace.tell("step")
        now = time.monotonic()
        if n <= 3 or turned or now - clock["written"] >= 1:
            clock["written"] = now
            write()
        if quiet > 1:
            here.quiet = quiet - 1
        else:
            looked(n, quiet)
        here.called = False
    except OSError:
        pass  # the folder is gone, or full: the job is not to know
    except Exception as e:
        clock["pid"] = 0  # never again
        here.quiet = 0
        wall.failed(e)


@wall.alone
def follows(optimizer, quiet):
    """Looks at a step that has ended, and returns whether it counts."""
    if handles["compiling"]() or os.getpid() != clock["pid"]:
        return False
    changes.after(optimizer)
    if not quiet:
        memory.after(optimizer)
    # Not before: while PyTorch goes through its hooks, none of them can be removed.
    if "over" in clock and "pre" in handles and not memory.armed() and not changes.active():
        handles.pop("pre").remove()
    return True


def looked(n, quiet):
    """Runs after a step that was looked at, or is the last one that was only counted, quiet."""
    for each in session.current.when_stepped:
        each(n)
    if snapshot.state["busy"]:
        snapshot.stepped(n)
    since = clock.pop("quiet", 0)
    if since:
        memory.looks_again(n - since - (not quiet), not quiet)
    session.current.quiet = 0 if quiet or n % EACH else still(n)
    if session.current.quiet:
        clock["quiet"] = n


def still(n):
    """Return how many of the next steps are only counted."""
    if n < CLOSELY or "over" not in clock or snapshot.state["busy"] or not all(each() for each in session.current.when_quiet):
        return 0
    return EACH - 1 if batches.quiet() and memory.quiet() and changes.quiet() else 0


def base():
    """Return the number of the job's own step before the first here."""
    for ask in session.current.sources:
        found = ask()[0]
        if found:
            return int(found)
    return 0


def write():
    """Reports the step in place: number, total, loss, time, what is held, what the process does
    since, its own part of a step, and the number once more."""
    if not session.current.speaks:
        return
    total, loss = 0, float("nan")
    for ask in session.current.sources:
        try:
            _, all_of, latest = ask()
            total, loss = int(all_of or 0), float("nan" if latest is None else latest)
        except Exception:
            pass
    n = clock["base"] + session.current.steps
    own = "%12.6f %12.6f" % (pace.own() if "over" in clock else (0, 0))
    record = "%12d %12d %24.10g %20.6f %s %5s %s %12d\n" % (n, total, loss, clock["at"], "%3d %15d %15d %15d %9d" % held(), session.current.phase, own, n)
    path = process.file("steps")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, rank.mode(path))
    try:
        os.pwrite(fd, record.encode("ascii"), 0)
    finally:
        os.close(fd)


def held():
    """Return (the device, -1 for the CPU; bytes given, bytes held, the most that was ever given,
    retries). What the job resets of its peaks is kept here."""
    try:
        meter = clock.get("meter") or clock.setdefault("meter", memory.meter())
        device, given, reserved, peak, retries = meter.now()
        clock["peak"] = max(clock["peak"], peak)
        return device, given, reserved, clock["peak"], retries
    except Exception:
        return -1, 0, 0, 0, 0


def end():
    """Reports the last step at the end of the program."""
    memory.end()
    changes.end()
    try:
        if os.getpid() == clock["pid"] and session.current.steps:
            session.current.phase = "train"
            write()
    except Exception:
        pass
