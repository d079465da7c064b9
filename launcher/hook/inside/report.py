# This is what sitecustomize.py runs once an uncaught exception ends the rank. It may
# fail at any point, for there may be no memory left, and its caller expects that.
import os
import sys

from . import rank


def report(path, names, began, kind, value, trace, alone=False):
    """Writes what was raised, and then the devices' memory, which may take time; then asks what the next
    attempt depends on. Alone: nothing will look at the variables of the traceback's frames.

    Names are variables of the environment that gpurun has set, joined by commas.
    """
    told = end(path, began)
    told["type"] = kind.__name__
    told["environ"] = dict((name, rank.variable(name)) for name in names.split(",") if name)
    try:
        describe(told, kind, value, trace)
    except Exception:
        pass  # there may be no memory left: the type is known
    save(path, told)
    measured(value, trace)
    memory = devices()
    if memory:
        told["memory"] = memory
        save(path, told)
    ask(path, told, value, trace, alone)


def ask(path, told, value, trace, alone):
    """Asks the process questions that are open, which takes time; the file says so meanwhile."""
    asking = []

    def began(seconds):
        asking.append(seconds)
        save(path, dict(told, asking=seconds))

    try:
        if "torch" in sys.modules and sys.version_info >= (3, 8):
            from . import questions

            questions.ask(value, trace, alone, began)
    except Exception:
        pass
    if asking:
        save(path, told)


def ended(path, began):
    """Writes that the process ends without an exception, where a program above it may end
    in another way."""
    told = end(path, began)
    told["trained"] = told["trained"] and stepped(os.path.dirname(path))
    if told["masked"] or told["inner"]:
        save(path, told)


def end(path, began):
    """Return the facts that are known at any end of this process."""
    import time

    told = {"pid": os.getpid(), "began": began, "time": time.time(), "masked": False, "inner": False, "trained": False}
    try:
        told["masked"], told["inner"] = rank.masked(os.path.join(os.path.dirname(path), "probe.json"))
        told["trained"] = (told["masked"] or told["inner"]) and trained(os.path.dirname(path))
    except Exception:
        pass  # it is not known
    return told


def trained(folder):
    """Return whether this process, or one that it started, was about to train a model."""
    from . import process

    return "torch" in sys.modules and (process.state["trains"] or any(started(folder)))


def stepped(folder):
    """Return whether this process, or one that it started, trained a model: it made an
    optimizer's step or, with an optimizer that is not PyTorch's, has gradients. A forward
    that nothing follows is an evaluation."""
    from . import process, root

    return process.told.get("stepping") or root.graded() or any(told.get("stepping") for told in started(folder))


def started(folder):
    """Return the reports of training processes that this process started."""
    import json

    for name in os.listdir(folder):
        if name.startswith("process") and name.endswith(".json"):
            with open(os.path.join(folder, name)) as f:
                told = json.load(f)
            if os.getpid() in told.get("above", ()):
                yield told


def measured(value, trace):
    """Reports what was measured of the process's memory, where that ran out."""
    try:
        if "torch" in sys.modules and sys.version_info >= (3, 8):
            from . import inplace, memory

            memory.last(value, trace)
            inplace.unanswered(value, trace)
    except Exception:
        pass


def describe(told, kind, value, trace):
    """Adds the exception's full name, its message, its traceback and its reasons."""
    told["type"] = name(kind)
    try:
        told["message"] = str(value)[:8192]
    except Exception:
        told["message"] = ""
    import traceback

    lines = traceback.format_exception(kind, value, trace)
    told["traceback"] = "".join([line[:8192] for line in lines])[-65536:]
    told["frames"] = frames(trace)
    told["chain"] = chain(value, trace)


def frames(trace):
    """Return a traceback without the exception's own words, which may hold any text."""
    import traceback

    lines = traceback.format_list(traceback.extract_tb(trace)[-64:])
    return "Traceback (most recent call last):\n" + "".join([line[:2048] for line in lines])[-8192:]


def chain(value, trace):
    """Return the exceptions that the exception was raised from, the nearest first, at most 4.

    Explicit is "raise ... from"; caught says that the frame that raised the one is the
    frame that had caught the other.
    """
    found, seen = [], [value]
    while len(found) < 4:
        inner = getattr(value, "__cause__", None)
        explicit = inner is not None
        if not explicit:
            inner = getattr(value, "__context__", None)
        if inner is None or any(inner is other for other in seen):
            break
        link = {"type": name(type(inner)), "message": "", "explicit": explicit, "caught": False}
        try:
            link["message"] = str(inner)[:8192]
        except Exception:
            pass
        below = getattr(inner, "__traceback__", None)
        if below is not None:
            link["frames"] = frames(below)
            link["caught"] = trace is not None and innermost(trace) is below.tb_frame
        found.append(link)
        seen.append(inner)
        value, trace = inner, below
    return found


def innermost(trace):
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def name(kind):
    """Return module.Class, the class alone for built-in ones."""
    if kind.__module__ in ("__main__", "builtins", "exceptions"):
        return kind.__name__
    return kind.__module__ + "." + kind.__name__


def devices():
    """Return what PyTorch knows about the memory of the devices that it uses."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    found = []
    try:
        if cuda is None or not cuda.is_initialized():
            return found
        current = cuda.current_device()
        for i in range(cuda.device_count()):
            peak = cuda.max_memory_reserved(i)
            if not peak and i != current:
                continue  # to ask the driver would claim memory there
            found.append({
                "device": i, "current": i == current,
                "allocated": cuda.memory_allocated(i), "max_allocated": cuda.max_memory_allocated(i),
                "reserved": cuda.memory_reserved(i), "max_reserved": peak,
            })
            found[-1]["free"], found[-1]["total"] = cuda.mem_get_info(i)
    except Exception:
        pass  # an older PyTorch, or a device that is lost
    return found


def save(path, told):
    """Writes a file atomically, without secrets."""
    import json

    from . import masked

    text = json.dumps(masked.copy(told)).encode("ascii")
    part = path + ".part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, rank.mode(path))
    try:
        whole = os.write(fd, text) == len(text)
    finally:
        os.close(fd)
    if whole:
        os.rename(part, path)
