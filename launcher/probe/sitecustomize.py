# gpurun puts this file in front of a rank's PYTHONPATH. When an uncaught exception
# ends the rank's main thread, report.py writes what was raised into a file, before
# anything else is done about the exception: what follows may hang. In all other
# respects Python is to behave as if this file were not there.
#
# Any Python reads it at its start, from 2.7 on: keep it short, and import nothing
# that Python does not import by itself.
import os
import sys


def is_rank(path):
    """Tells whether this process is the rank, and not something that it started.

    A rank leads a session, and its parent was not told of the file.
    """
    if os.getsid(0) != os.getpid():
        return False
    word = "GPURUN_PROBE_FILE=" + path
    try:
        with open("/proc/%d/environ" % os.getppid(), "rb") as f:
            return getattr(os, "fsencode", str)(word) not in f.read().split(b"\0")
    except (IOError, OSError):
        return True  # it is another user's, and so was not told


def watch(path, names):
    """Chains the hook that tells of the exception that ends the main thread."""
    try:
        from _thread import get_ident
    except ImportError:
        from thread import get_ident
    import atexit

    pid, thread = os.getpid(), get_ident()
    state = {}

    def tell(kind, value, trace):
        # A fork inherits the hook, and a thread that fails does not end the rank.
        # KeyboardInterrupt is somebody's stop.
        if "told" in state or os.getpid() != pid or get_ident() != thread:
            return
        if not issubclass(kind, (KeyboardInterrupt, SystemExit)):
            module = {"__name__": "report"}
            with open(os.path.join(here, "report.py")) as f:
                exec(compile(f.read(), f.name, "exec"), module)
            module["report"](path, names, kind, value, trace)
            state["told"] = True

    def excepthook(kind, value, trace):
        try:
            if running(sys._getframe()):
                state["printed"] = id(value)
            else:
                tell(kind, value, trace)
        except BaseException:
            pass
        previous(kind, value, trace)

    def at_exit():
        # The program may have put a hook of its own in place of this one. Python
        # keeps what it handed to the hook.
        try:
            value = getattr(sys, "last_value", None)
            if value is not None and state.get("printed") != id(value):
                tell(sys.last_type, value, sys.last_traceback)
        except BaseException:
            pass

    previous = sys.excepthook
    # Programs ask whether the hook is the original one, and their own hooks call
    # the original: both are to go on as they would.
    if previous is sys.__excepthook__:
        sys.__excepthook__ = excepthook
    sys.excepthook = excepthook
    atexit.register(at_exit)


def running(frame):
    """Tells whether a program still runs that only has an exception printed."""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def withdraw():
    """Leaves Python's path, the environment and the module's name as they were."""
    sys.path[:] = [p for p in sys.path if p != here]
    sys.path_importer_cache.pop(here, None)
    first, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == here:
        os.environ.pop("PYTHONPATH")
        if rest:
            os.environ["PYTHONPATH"] = rest
    return sys.modules.pop("sitecustomize", None)


def main():
    path = os.environ.get("GPURUN_PROBE_FILE")
    if path and not (sys.flags.inspect or sys.flags.interactive) and is_rank(path):
        watch(path, os.environ.get("GPURUN_PROBE_NAMES", ""))
    os.environ.pop("GPURUN_PROBE_FILE", None)
    os.environ.pop("GPURUN_PROBE_NAMES", None)


here = os.path.dirname(__file__)
kept = withdraw()  # Python 2 empties a module that nobody keeps
try:
    # The one that would have been found; without one, the error that says so.
    import sitecustomize
finally:
    try:
        main()
    except Exception:
        pass
