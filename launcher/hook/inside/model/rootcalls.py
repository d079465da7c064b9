# The calls of the root, for the modules that count or measure them: its class has another __call__,
# which looks whether it is the root that is called (forwards.py).
import os
import sys

from ..base import session, wall
from . import exclusions, forwards

listeners: list = []  # each with begin(args, kwargs), end(output), failed(), as far as it needs them
methods: dict = {"begin": [], "end": [], "failed": []}  # by name, those of the listeners; other lists where one leaves
state: dict = {}


def listen(root, *those):
    """Calls listeners at every call of the root but the current one."""
    torch = sys.modules["torch"]
    if isinstance(root, torch.jit.ScriptModule):
        return False
    follow(those)
    state.update(pid=os.getpid(), compiling=exclusions.recording(torch))
    forwards.call(root, called)
    return True


def called(root, plain, args, kwargs):
    if state["compiling"]() or session.current.repeating or session.current.asked or not listeners and session.current.call is None or os.getpid() != state["pid"]:
        return plain(root, *args, **kwargs)
    tell(methods["begin"], args, kwargs)
    return run(plain, root, args, kwargs)


def follow(those):
    global listeners
    listeners = list(those)
    for name in ("begin", "end", "failed"):
        methods[name] = [getattr(each, name) for each in listeners if hasattr(each, name)]


def tell(those, *args):
    """Call methods of listeners, unless the hook is off."""
    if wall.state["off"]:
        return
    try:
        for each in those:
            each(*args)
    except Exception as e:
        wall.failed(e)


def leave(listener):
    """Removes a listener."""
    follow(each for each in listeners if each is not listener)


def run(plain, root, args, kwargs):
    """Calls the root and its listeners. The first call comes here, too."""
    guard = session.current.call
    try:
        output = plain(root, *args, **kwargs) if guard is None else guard(plain, root, args, kwargs)
    except BaseException:
        tell(methods["failed"])
        raise
    tell(methods["end"], output)
    return output


def is_recorded():
    """Return whether a call of the root is only recorded: see exclusions.recording."""
    return state.get("compiling", bool)()


def is_call(frame):
    """Return whether a frame is that of a call of the root."""
    return frame.f_code is run.__code__


def phase_in(frames):
    """Return the phase that frames are in, innermost first: optimizer, backward, call (of
    the root); "" for none of them."""
    for frame in frames:
        code = frame.f_code
        path = code.co_filename.replace("\\", "/")
        if is_call(frame):
            return "call"
        if path.endswith(("/torch/_tensor.py", "/torch/autograd/__init__.py")) and code.co_name in ("backward", "grad"):
            return "backward"
        if code.co_name == "step" and ("/optim/" in path or hasattr(frame.f_locals.get("self"), "param_groups")):
            return "optimizer"
    return ""
