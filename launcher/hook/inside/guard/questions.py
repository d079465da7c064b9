# What is asked of a process that ends because memory ran out, after its last word and before its error is printed: what
# the next attempt is decided by, and only the process can show. It is asked nothing that it has answered before; it
# joins no collective, and writes nothing but its report. The time for all of it is bounded.
import _thread
import ctypes
import sys
import threading
import time
import traceback

from ..base import process, ranout, session, wall
from ..model import garbage, rootcalls, rootstate
from ..observe import batches, loaders, trainerloss
from ..remedies import split


class TimeUp(BaseException):
    """Ends a question for which there is no time left."""


def seconds():
    """Return how long the process may be asked, 0 for not at all."""
    return float(process.orders().get("questions") or 0)


def ask(value, trace, alone, began):
    """Ask, after an exception that ends the process. Alone: nothing will look at the variables of the frames of its
    traceback. began(seconds) is called before the first question."""
    bound = seconds()
    if not bound or not process.here() or ranout.reason(value) is None:
        return
    found = questions(trace)
    if not found:
        return
    if alone:
        release(value)  # first: a report and the limit's thread need memory, too
    began(bound)
    until = time.monotonic() + bound
    session.current.asked = True
    try:
        with Limit(bound):
            for question in found:
                if time.monotonic() < until:
                    wall.alone(question)()
    finally:
        session.current.asked = False
    process.save()


def questions(trace):
    """Return the questions that are open."""
    found = [wall.alone(part.question)() for part in (trainerloss, loaders)]
    call = latest(trace)
    if call is not None:
        found += [wall.alone(batches.question)(*call[1:3]), lambda: rows(*call)]
    return [each for each in found if each is not None]


def latest(trace):
    """Return what the root was called with last, and autocast's state then; None where that is not known."""
    root = session.current.root()
    if root is None:
        return None
    guard = session.current.guard
    calls = [] if guard is None else guard.calls() + ([guard.current] if guard.current is not None else [])
    if calls and guard.root() is root:
        call = calls[-1]
        return root, call.args, call.kwargs, call.state.cast
    for frame in ranout.frames_of(trace):
        if rootcalls.is_call(frame):
            found = frame.f_locals
            return root, found["args"], found["kwargs"], rootstate.autocast(sys.modules["torch"])
    return None


def rows(root, args, kwargs, cast):
    """Ask whether the model computes each row of a batch by itself."""
    with rootstate.cast_as(cast):
        answer = split.look(root, args, kwargs)
    split.answered(root, answer)


def release(value):
    """Let go what the failed step holds, but for parameters, their gradients, and optimizer states: what runs at the exit
    of the process may save them."""
    error = value
    for _ in range(8):
        if error is None:
            break
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    garbage.collect()


STACK = 1 << 18  # bytes of the thread that waits: a usual stack is larger than what may be left of the process's data


class Limit:
    """Ends what runs in this thread after so many seconds."""

    def __init__(self, seconds):
        self.thread, self.over = _thread.get_ident(), False
        self.timer = threading.Timer(seconds, self.end)
        self.timer.daemon = True

    def end(self):
        if not self.over:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(TimeUp))

    def __enter__(self):
        before = threading.stack_size(STACK)
        try:
            self.timer.start()
        finally:
            threading.stack_size(before)

    def __exit__(self, kind, *exception):
        self.over = True
        self.timer.cancel()
        return kind is not None and issubclass(kind, (TimeUp, KeyboardInterrupt))
