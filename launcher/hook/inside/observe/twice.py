# Whether a job differentiates twice: a backward pass that makes a graph, such as a gradient penalty,
# torch.autograd.functional.jvp and torch.func, or derivatives in the forward direction. The graph
# of the first derivative holds all that the model's forward computed, recomputed blocks as well.
import functools
import sys

from ..base import process, session, wall
from ..model import forwards

KNOB = "activation_checkpointing"
AT = {"grad": 4, "backward": 3}  # the position of create_graph
state: dict = {}


def arm(root, tell):
    """Watches until leave(). tell(how) is called once, at the first sign."""
    torch = sys.modules["torch"]
    state.update(tell=tell, root=root, undo=[])
    for name in AT:
        watch(torch.autograd, name)
    if forward():
        seen("derivatives in the forward direction")


def watch(module, name):
    plain, at = getattr(module, name), AT[name]

    def looks(own, *args, **kwargs):
        if kwargs.get("create_graph") or len(args) > at and args[at]:
            seen("torch.autograd.%s with create_graph" % name)
        return own(*args, **kwargs)

    call = functools.wraps(plain)(wall.wrapped(plain, looks))
    setattr(module, name, call)
    state["undo"].append(lambda: remove(module, name, plain, call))


def remove(module, name, plain, call):
    """Put a function back. What inplace.py has put around the wrapper since calls the function itself from now on."""
    guard = session.current.guard
    if getattr(module, name) is call:
        setattr(module, name, plain)
    elif guard is not None and guard.engine is call:
        guard.engine = plain


FORWARD = "the job takes derivatives in the forward direction, which belong to the call: neither a second one nor its parts have them later"

forwards_seen: set = set()  # not empty once the root was called so


def forward():
    """Return whether the root is called to be differentiated in the forward direction."""
    module = sys.modules.get("torch.autograd.forward_ad")
    if getattr(module, "_current_level", -1) < 0:
        return False
    forwards_seen.add(True)
    return True


@process.guarded
def seen(how):
    tell, root = state.pop("tell", None), state.pop("root", None)
    if tell is None or not process.here():
        return
    tell(how)
    model = root()
    if model is not None and not forwards.is_recomputed(model):
        process.note("refused", {KNOB: "the job differentiates twice (%s), so recomputed blocks are held for the second pass" % how})
        process.save()


def leave():
    for undo in state.pop("undo", ()):
        undo()
    state.clear()
