# The calls of the root, for the modules that count or measure them: its class has another __call__,
# which looks whether it is the root that is called (forwards.py).
import operator
import os
import sys

from ..base import session, wall
from . import exclusions, forwards

# Each with begin(args, kwargs), end(output), failed(), as far as it needs them; equal: whether it has to see each call
# of another shape.
listeners: list = []
methods: dict = {"begin": [], "end": [], "failed": []}  # by name, those of the listeners; other lists where one leaves
state: dict = {}
usual: dict = {}  # by position or name, the shapes of the latest call that was looked at; those of a dict in another one
PLAIN = frozenset((type(None), bool, int, float, str))  # types of arguments that are no batch


def listen(root, *those):
    """Calls listeners at every call of the root but the current one."""
    torch = sys.modules["torch"]
    if isinstance(root, torch.jit.ScriptModule):
        return False
    follow(those)
    state.update(pid=os.getpid(), compiling=exclusions.recording(torch), compiles=exclusions.compiles(torch), enabled=torch.is_grad_enabled)
    forwards.call(root, called, counting)
    return True


def counting(follow):
    """Return what makes the calls of the root: in steps that are only counted, those like earlier ones go straight to it,
    all others through follow."""
    compiles, enabled = state["compiles"], state["enabled"]

    def count(root, plain, args, kwargs):
        try:  # torch.compile watches all that is read before it is asked
            like = not compiles() and session.current.quiet and root.training and enabled() and are_usual(args, kwargs)
        except Exception as e:
            wall.failed(e)
            like = False
        if not like:
            return follow(root, plain, args, kwargs)
        try:
            output = plain(root, *args, **kwargs)
        except BaseException as e:
            unusual(args, kwargs, e)
            raise
        session.current.called = True
        return output

    return count


def called(root, plain, args, kwargs):
    here = session.current
    if state["compiling"]() or here.repeating or here.asked or not listeners and here.call is None or os.getpid() != state["pid"]:
        return plain(root, *args, **kwargs)
    if root.training:
        here.quiet = 0
        become_usual(args, kwargs)
    tell(methods["begin"], args, kwargs)
    return run(plain, root, args, kwargs)


def are_usual(args, kwargs):
    """Return whether the arguments of a call are like those of an earlier one that was looked at."""
    return len(args) + len(kwargs) == len(usual) and have_shapes(usual, args, kwargs, state["equal"])


def have_shapes(shapes, args, kwargs, equal=True):
    """Return quickly whether the arguments of a call are tensors of these shapes, by position or name, or numbers and the
    like. If not equal, smaller tensors are, too."""
    for name, value in (*enumerate(args), *kwargs.items()) if kwargs else enumerate(args):
        shape, known = getattr(value, "shape", None), shapes.get(name)
        if shape is not None:
            if shape != known and (equal or known is None or len(shape) != len(known) or not all(map(operator.le, shape, known))):
                return False
        elif type(value) is dict:
            if type(known) is not dict or len(value) != len(known) or not have_shapes(known, (), value, equal):
                return False
        elif known is not None or type(value) not in PLAIN:
            return False
    return True


def become_usual(args, kwargs):
    """Note the shapes of a call's arguments."""
    if not are_usual(args, kwargs):
        usual.clear()
        usual.update(shapes_of((*enumerate(args), *kwargs.items())))


def shapes_of(items):
    return {name: shapes_of(value.items()) if type(value) is dict else getattr(value, "shape", None) for name, value in items}


@wall.alone
def unusual(args, kwargs, error):
    """Note of a call that only was counted, and failed, what would have been noted of another."""
    here = session.current
    if here.asked or os.getpid() != state["pid"]:
        return
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
    state["equal"] = any(getattr(each, "equal", False) for each in listeners)


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
