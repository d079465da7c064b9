# How this process ends, below a shell, which takes its exit code and hides it. The kernel
# reports that to gpurun from Linux 6.15 on, unless the process was too short to be seen; for an
# older one every exit code is noted, and a process that trains and notes none was killed.
import atexit
import os
import sys

from . import rank, wall, wrapping

state: dict = {"code": 0}  # of the last call of sys.exit


def arm(path):
    """Notes at the end that an exception brought it about; for an older kernel, the exit
    code."""
    pid = os.getpid()

    def ended(status):
        inner = " inner" if status and rank.masked(path)[1] else ""
        rank.note(path, "ended %d%s" % (status, inner))

    script = (getattr(sys, "argv", None) or [""])[0]

    def finish():
        if os.getpid() != pid:
            return
        kind = getattr(sys, "last_type", None)
        if kind is not None:
            ended(130 if kind is KeyboardInterrupt else 1)
        else:
            ended(state["code"] or 2 * unopened(script))

    atexit.register(wall.alone(finish))
    if os.path.exists(os.path.join(os.path.dirname(path), "ends")):
        wrap(pid, ended)


def unopened(script):
    """Reports whether Python could not open its script, after which it ends with 2."""
    named = script not in ("", "-c", "-m")
    return named and not hasattr(sys.modules.get("__main__"), "__file__") and not os.path.exists(script)


def wrap(pid, ended):
    def exit(own, *status):
        if os.getpid() == pid:
            state["code"] = code(*status)
        own(*status)

    def _exit(own, status):
        if os.getpid() == pid:
            ended(status)
        own(status)

    wrapping.replace(sys, "exit", exit)
    wrapping.replace(os, "_exit", _exit)
    setattr(sys.modules["posix"], "_exit", os._exit)  # where pickle looks it up


def code(status=None, *_):
    """Return the exit code that sys.exit makes of its argument."""
    return 0 if status is None else status & 255 if isinstance(status, int) else 1
