# This process's report: process.json of a rank, process-<pid>.json of a
# process that the job started itself. The newest is the truth: each file replaces the
# one before it.
import json
import os
import sys

from . import rank, report, session, wall

start = rank.start

# The report, without the settings. strategy.Said names the keys.
told: dict = {}

# By knob, the reported values: {authority: (value, by)}. The largest authority counts.
said: dict = {}

# Authorities.
SHAPE, LOADER, MEASURED, ARGUMENT, FRAMEWORK, MODEL, GPURUN = range(7)

# Which process this is; a fork of it is another one.
session.current.speaks = start.get("role") == "rank"
state: dict = {"pid": os.getpid(), "text": "", "problems": [], "waits": False, "traced": False}


def here():
    """Return whether this is the process that the state is of, and not a fork of it."""
    return os.getpid() == state["pid"]


def orders():
    """Return gpurun's orders, read once."""
    if "orders" not in state:
        try:
            with open(start["told"]["GPURUN_PROBE_ORDERS"]) as f:
                state["orders"] = json.load(f)
        except (OSError, ValueError):
            state["orders"] = {}
    return state["orders"]


def trains():
    """Called when this process trains a model. From now on it reports."""
    if not here():
        fork()
    session.current.trains = True
    if session.current.speaks:
        return
    path = start["told"]["GPURUN_PROBE_FILE"]
    told["above"] = [pid for pid, _ in rank.above(path)]
    if start["role"] == "passer" and rank.claim(path):
        start["role"] = "rank"
    session.current.speaks = True


def fork():
    """Starts again in a process that was forked."""
    state.update(pid=os.getpid(), text="", problems=[])
    session.current.speaks = session.current.trains = False
    if start["role"] == "rank":
        start["role"] = "own"


def file(name):
    """Return the path of one of this process's files in the rank's folder."""
    base, dot, end = name.partition(".")
    if start["role"] != "rank":
        base += "-%d" % os.getpid()
    return os.path.join(os.path.dirname(start["told"]["GPURUN_PROBE_FILE"]), base + dot + end)


def settle(knob, value, by, authority):
    """Notes the value of a knob, and its source. None: unknown."""
    if value is None:
        said.get(knob, {}).pop(authority, None)
    else:
        said.setdefault(knob, {})[authority] = (value, by)


def settings():
    """Return the certain settings: by knob, the value and its source."""
    values, by = {}, {}
    for knob, voices in said.items():
        if voices and not disputed(knob, voices) and not idle(knob):
            values[knob], by[knob] = voices[max(voices)]
    return values, by


def idle(knob):
    """Return whether a knob has no effect here: without CUDA no memory is pinned, and there is no such allocator,
    whatever the setting."""
    return knob in ("pin_memory", "allocator") and "torch.cuda" in sys.modules and not sys.modules["torch.cuda"].is_available()


def disputed(knob, voices):
    """Return whether a framework's setting differs from what was observed."""
    seen = voices.get(LOADER if knob == "micro_batch_size" else MEASURED)
    meant = voices.get(FRAMEWORK)
    return knob in ("micro_batch_size", "gradient_accumulation_steps") and \
        seen is not None and meant is not None and seen[0] != meant[0] * session.current.replicas


def note(key, more):
    """Adds to one of the reported dictionaries: applied, failed, refused."""
    for knob, value in more.items():
        told.setdefault(key, {})[knob] = value


def problem(where, error):
    """Notes an error in the hook itself. The job continues."""
    trouble("%s: %s: %s" % (where, type(error).__name__, error))


def trouble(text):
    text = text[:300]
    if len(state["problems"]) < 8 and text not in state["problems"]:
        state["problems"].append(text)
        save()


def where(place):
    """Return file and line of a traceback."""
    return "%s:%d" % (os.path.basename(place.tb_frame.f_code.co_filename), place.tb_lineno)


guarded = wall.guarded


# Errors in the hook itself.


def failed(error, withdraws):
    """Report an error in the hook, and that its remedies are off where it withdraws them. Never fails."""
    for note in (reported, traced, withdrawn if withdraws else None):
        try:
            if note is not None:
                note(error)
        except Exception:
            pass


start.setdefault("failed", failed)


def reported(error):
    place = trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(wall.HERE):
            place = trace
        trace = trace.tb_next
    problem(where(place) if place is not None else "hook", error)


def traced(error):
    """Write the whole traceback of the first error."""
    if state["traced"]:
        return
    state["traced"] = True
    import traceback

    if not session.current.speaks or not here():
        return
    path = file("hook-error.txt")
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, rank.mode(path))
    try:
        os.write(fd, text.encode("utf-8", "backslashreplace")[:1 << 16])
    finally:
        os.close(fd)


def withdrawn(error):
    """Report that the remedies in the process are off: the job runs as it would without them."""
    for knob in session.current.turned:
        if (told.get("applied") or {}).pop(knob, None) is not None:
            note("failed", {knob: "gpurun's hook failed: " + wall.said(error)})
            settle(knob, None, "", GPURUN)
    save()


def say(words):
    """Prints a line, on the rank with the number 0 only."""
    if os.environ.get("RANK", "0") in ("", "0"):
        try:
            os.write(2, ("gpurun: %s\n" % words).encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # it is closed, or full: process.json has it


def number(name):
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return 0


def world():
    """Return the number of ranks, 0 where there is no process group."""
    distributed, horovod = sys.modules.get("torch.distributed"), sys.modules.get("horovod.torch")
    try:
        if horovod is not None and horovod.is_initialized():
            return horovod.size()
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_world_size()
    except Exception:
        pass
    return 0


class together:
    """A context in which nothing is written before its end."""

    def __enter__(self):
        state["waits"] = True

    def __exit__(self, kind, *exception):
        state["waits"] = False
        if kind is None:
            save()


def save():
    """Writes the report, if it is new. A process that does not report writes nothing."""
    if not session.current.speaks or not here() or state["waits"]:
        return
    state["world"] = world() or state.get("world", 0)  # a job may end its process group before it ends
    whole = dict(told, pid=os.getpid(), world=state["world"])
    whole["settings"], whole["told_by"] = settings()
    if state["problems"]:
        whole["problems"] = state["problems"]
    text = json.dumps(whole, default=str, sort_keys=True)
    if text == state["text"]:
        return
    state["text"] = text
    try:
        report.save(file("process.json"), whole)
    except (OSError, ValueError, TypeError):
        pass  # the folder is gone, or full: the job is not to know
