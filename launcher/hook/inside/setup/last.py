# This is what sitecustomize.py runs once an uncaught exception ends the rank. It may
# fail at any point, for there may be no memory left, and its caller expects that.
import os
import sys
import time

from ..base import process, rank, report, session
from ..model import root
from ..observe import memory as memory_part
from ..guard import inplace, questions


def reported(path, names, began, kind, value, trace, alone=False):
    """Writes what was raised, and then the devices' memory, which may take time; then asks what the next
    attempt depends on. Alone: nothing will look at the variables of the traceback's frames.

    Names are variables of the environment that gpurun has set, joined by commas.
    """
    told = end(path, began)
    told["type"] = kind.__name__
    told["environ"] = {name: rank.variable(name) for name in names.split(",") if name}
    try:
        report.describe(told, kind, value, trace)
    except Exception:
        pass  # there may be no memory left: the type is known
    report.save(path, told)
    measured(value, trace)
    memory = report.devices()
    if memory:
        told["memory"] = memory
        report.save(path, told)
    ask(path, told, value, trace, alone)


def ask(path, told, value, trace, alone):
    """Asks the process questions that are open, which takes time; the file says so meanwhile."""
    asking = []

    def began(seconds):
        asking.append(seconds)
        report.save(path, dict(told, asking=seconds))

    try:
        if "torch" in sys.modules:
            questions.ask(value, trace, alone, began)
    except Exception:
        pass
    if asking:
        report.save(path, told)


def ended(path, began):
    """Writes that the process ends without an exception, where a program above it may end
    in another way."""
    told = end(path, began)
    told["trained"] = told["trained"] and stepped(os.path.dirname(path))
    if told["masked"] or told["inner"]:
        report.save(path, told)


def end(path, began):
    """Return the facts that are known at any end of this process."""
    told = {"pid": os.getpid(), "began": began, "time": time.time(), "masked": False, "inner": False, "trained": False}
    try:
        told["masked"], told["inner"] = rank.masked(os.path.join(os.path.dirname(path), "probe.json"))
        told["trained"] = (told["masked"] or told["inner"]) and trained(os.path.dirname(path))
    except Exception:
        pass  # it is not known
    return told


def trained(folder):
    """Return whether this process, or one that it started, was about to train a model."""
    return "torch" in sys.modules and (session.current.trains or any(started(folder)))


def stepped(folder):
    """Return whether this process, or one that it started, trained a model: it made an
    optimizer's step or, with an optimizer that is not PyTorch's, has gradients. A forward
    that nothing follows is an evaluation."""
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
        if "torch" in sys.modules:
            memory_part.last(value, trace)
            inplace.unanswered(value, trace)
    except Exception:
        pass
