# What this process did again after memory had run out, for process.json.
import time

from ..base import process, ranout, session, wall
from . import memory, pace, snapshot

entries: list = []


def active(names):
    """Note that remedies are on in the current step: its measurements are of them."""
    session.current.active |= frozenset(names)


def begin(phase):
    """Begin a repeat: what memory is measured, and what runs out, is the failed pass's until it ends."""
    session.current.repeating = True
    memory.failing(phase)


def end():
    session.current.repeating = False


def done(phase, remedy, seconds, failure=None, elements=0, longest=0, parts=0):
    """Report a repeat that ended well. Calls with so many elements in their inputs, or with so long
    a longest dimension, use the remedy from then on."""
    held = memory.repeated(ranout.figure(ranout.SIZE, failure))
    pace.tell("spoilt")
    snapshot.keep()
    entry(phase, remedy, seconds, failure, elements, longest, parts, held or 0)


def entry(phase, remedy, seconds, failure=None, elements=0, longest=0, parts=0, held=0):
    """Report a pass that was done in another way, without or with a failure. A size is infinite while the remedy is only
    tried: then no later call uses it. JSON has no such number."""
    step = session.current.steps
    elements, longest = (0 if n == float("inf") else n for n in (elements, longest))
    same = (each for each in entries if (each["rung"], each["phase"], each["parts"]) == (remedy, phase, parts))
    found = next(same, None)
    if found is None:
        found = {
            "rung": remedy, "phase": phase, "step": step, "times": 0, "requested_bytes": ranout.figure(ranout.SIZE, failure), "seconds": 0.0,
            "parts": parts, "at": time.time(), "held_bytes": 0,
        }
        entries.append(found)
    if session.current.allocator:
        found["allocator"] = session.current.allocator
    found.update(times=found["times"] + 1, last_step=step, seconds=found["seconds"] + seconds, elements=elements, longest=longest, held_bytes=max(found["held_bytes"], held))
    process.told["in_place"] = entries
    process.save()
    for each in session.current.when_repeated:
        wall.alone(each)(found)


def refused(phase, why, rungs=()):
    """Report an error of memory that goes up to the job. The remedies rungs were on when memory ran out."""
    reason = str(why)[:300] or type(why).__name__
    process.told["in_place_refused"] = {"phase": phase, "step": session.current.steps, "reason": reason, "rungs": list(rungs)}
    process.save()
