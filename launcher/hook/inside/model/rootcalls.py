# The calls of the root, for the modules that count or measure them: its class has another __call__,
# which looks whether it is the root that is called (forwards.py).
import os
import sys

from ..base import session, wall
from . import exclusions, forwards

listeners: list = []  # each with begin(args, kwargs), end(output), failed(), as far as it needs them
methods: dict = {"begin": [], "end": [], "failed": []}  # by name, those of the listeners; other lists where one leaves
state: dict = {}
usual: dict = {}  # by position or name, the shapes of the latest call that was looked at
PLAIN = frozenset((type(None), bool, int, float, str))  # types of arguments that are no batch


def listen(root, *those):
    """Calls listeners at every call of the root but the current one."""
    torch = sys.modules["torch"]
    if isinstance(root, torch.jit.ScriptModule):
        return False
    follow(those)
    state.update(pid=os.getpid(), compiling=exclusions.recording(torch), enabled=torch.is_grad_enabled)
    forwards.call(root, called)
    return True


def called(root, plain, args, kwargs):
    here = session.current
    if state["compiling"]() or here.repeating or here.asked or not listeners and here.call is None or os.getpid() != state["pid"]:
        return plain(root, *args, **kwargs)
    if here.quiet and root.training and state["enabled"]() and len(args) + len(kwargs) == len(usual) and have_shapes(usual, args, kwargs):
        try:
            output = plain(root, *args, **kwargs)
        except BaseException as e:
            unusual(args, kwargs, e)
            raise
        here.called = True
        return output
    if root.training:
        here.quiet = 0
        becomes_usual(args, kwargs)
    tell(methods["begin"], args, kwargs)
    return run(plain, root, args, kwargs)


def have_shapes(shapes, args, kwargs):
    """Return quickly whether the arguments of a call are tensors of these shapes, by position or name, or numbers and the like."""
    for name, value in (*enumerate(args), *kwargs.items()) if kwargs else enumerate(args):
        shape = getattr(value, "shape", None)
        if shapes.get(name) != shape or shape is None and type(value) not in PLAIN:
            return False
    return True


def becomes_usual(args, kwargs):
    """Note the shapes of a call's arguments."""
    usual.clear()
    for name, value in (*enumerate(args), *kwargs.items()):
        usual[name] = getattr(value, "shape", None)


def unusual(args, kwargs, error):
    """Note of a call that only was counted, and failed, what would have been noted of another."""
    here = session.current
    here.quiet = 0
    tell(methods["begin"], args, kwargs)
    tell(methods["failed"])
    if here.guard is not None:
        here.guard.lost(None, error)


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
