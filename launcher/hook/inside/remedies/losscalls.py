# The calls of PyTorch's cross entropy: how large their logits are, and whether they are computed in
# parts. Every name of the function, imported by the job or not, calls torch._C._nn.cross_entropy_loss,
# which has another function in front for as long.
import functools
import time
import types

import torch

from ..base import caught, process, ranout, room, session, wall, wrapping
from ..model import exclusions, figures, garbage, listed
from ..observe import inputs, repeats
from . import expandable, losspart, upcast

VALUES = ("on",)

KNOB = "loss_parts"
RUNG = "loss-parts"
HOLDS, SLOWER = 1.75, .3  # times the same bytes: what is held without parts; and the most of a step's time that parts add
NEEDS = 3  # times the logits' bytes in fp32: what PyTorch's own needs, with its backward
WITHOUT = 2  # the same without gradients: the logits in fp32, where autocast converts them, and their log-softmax
UNSEEN = "no call of cross_entropy had large logits"

# plain: PyTorch's function, while another is in front; usual: the elements of the largest logits; least: the elements of the smallest logits that
# are computed in parts in place, None where that is not permitted; allowed: the bytes that the
# process may have, 0 where that is not known.
state: dict = {"largest": 0, "usual": 0, "on": False, "tell": None, "least": None, "allowed": 0}


def before_root(torch):
    """Compute the losses of evaluations before the root's first call in parts, too: if the plan has parts, or if they
    have too little memory."""
    orders = process.orders()
    planned = (orders.get("turn") or {}).get(KNOB) in VALUES
    if not orders.get("hooks") or not planned and not permitted() or replaced(torch):
        return
    listen(torch)
    state["on"] = planned
    if planned:
        upcast.watch(is_converted_later)
    permit()


def first(root, args, kwargs):
    """Begin to look at the calls, before the root's first forward."""
    excluded = exclusions.reason(root)
    state["on"] = False  # turn() decides for the root
    state["expected"] = expected(torch, root, args, kwargs)
    state["allowed"] = room.allowed(next(root.parameters()).device)
    if not replaced(torch):
        listen(torch)
        if not excluded:
            permit()
            return
    state["least"] = None
    upcast.leave()


def permitted():
    """Return whether gpurun's orders permit parts where memory runs out."""
    orders = process.orders()
    return bool(orders.get("hooks")) and RUNG in ((orders.get("in_place") or {}).get("rungs") or ())


def permit():
    """Compute cross entropies in parts that have too little memory, where that is permitted."""
    if permitted():
        armed = [entry.get("elements") for entry in process.orders()["in_place"].get("armed") or () if entry.get("rung") == RUNG]
        state["least"] = min([n for n in armed if n] + [state["least"] or float("inf")])
        upcast.watch(is_converted_later)


def large():
    """Return the bytes of logits in fp32 from which parts are used."""
    return losspart.least(state["allowed"])


def follows(size):
    """Return whether a cross entropy over outputs of so many bytes in fp32 would be computed in
    parts, as far as is known."""
    permitted = state["on"] or state["least"] is not None
    return permitted and "plain" in state and (state["largest"] >= size // 2 or not state["largest"] and state.get("expected", 0) > 0)


def expected(torch, root, args, kwargs):
    """Return the bytes that logits for each token may have; 0 where the input has no tokens."""
    tokens = inputs.largest(args, kwargs)
    if type(tokens) is not torch.Tensor or tokens.is_floating_point():
        return 0
    width, _ = figures.widest(listed.modules(root))
    return tokens.numel() * width * 4


def refusal(root, value=None):
    """Return why it cannot be turned on for this model, "" if it can. Without a value: why it would not help."""
    excluded = exclusions.reason(root)
    if excluded:
        return excluded
    other = replaced(torch)
    if other:
        return "cross_entropy is replaced by %s" % other
    if state["on"]:
        return "it is on already"
    return "" if value or max(state["largest"], state.get("expected", 0)) >= large() else UNSEEN


def replaced(torch):
    """Return the owner of a cross_entropy that replaces PyTorch's, "" for PyTorch's own."""
    functional = getattr(torch.nn, "functional", None)
    own = getattr(functional, "cross_entropy", None)
    if own is None:
        return "this PyTorch, which has no cross_entropy"
    if getattr(getattr(own, "__code__", None), "co_filename", "") != functional.__file__:
        return str(getattr(own, "__module__", None) or type(own).__module__)
    called = getattr(torch._C._nn, "cross_entropy_loss", None)
    if called is None:
        return "this PyTorch, which has no cross_entropy_loss"
    return "" if isinstance(called, types.BuiltinFunctionType) or getattr(called, "gpurun", False) else str(called.__module__)


def turn(root, value="on", tell=None):
    """Compute large cross entropies in parts, and return [old, new]."""
    listen(torch)
    state.update(on=True, tell=tell)
    upcast.watch(is_converted_later)
    losspart.changed[:] = [lambda: give_up("the job writes to the logits after the loss")]
    return ["off", value]


def is_converted_later(logits, failure=None):
    """Return whether a loss that converts these logits to fp32 is computed in parts: that converts one part at a time.
    Failure: that of PyTorch's conversion."""
    size = losspart.size(logits)
    if logits.dim() < 2 or not losspart.is_large(size, logits.device) or state["compiling"]() or not losspart.can_divide(torch, logits):
        return False
    if state["on"] or state["least"] is None:
        return state["on"]
    if logits.numel() >= state["least"]:
        return True
    if is_recomputed():
        return False
    if failure is not None:
        return not caught.by_a_caller()
    free = wall.alone(room.free)(logits.device)
    return free is not None and free < (needs(logits) + 1) * size


def give_up(reason):
    state.update(on=False, least=None)
    upcast.leave()
    if state["tell"]:
        state["tell"](reason)


def listen(torch):
    if "plain" in state:
        return
    plain = torch._C._nn.cross_entropy_loss
    compiling, tensors = exclusions.recording(torch), (torch.Tensor, torch.nn.Parameter, upcast.Later)
    state["compiling"] = compiling

    def cross_entropy_loss(*args, **kwargs):
        if kwargs or len(args) != 6 or type(args[0]) not in tensors:
            return plain(*args, **kwargs)
        if session.current.quiet and not state["on"] and args[0].numel() <= state["usual"]:
            try:
                return plain(*args)
            except Exception as e:
                if not ranout.is_one(e):
                    raise
        return wall.call(plain, computes, wall.ALL, *args)

    def computes(own, *args):
        if compiling():
            return own(*args)
        seen(losspart.size(args[0]))
        state["usual"] = min(max(args[0].numel(), state["usual"]), state["least"] or float("inf"))
        if (state["on"] or state["least"] is not None) and losspart.works(torch, *args):
            return divided(own, args) if state["on"] else in_place(own, args)
        return own(*args)

    mine = wrapping.like(plain, cross_entropy_loss)
    mine.__dict__["gpurun"] = True
    state.update(plain=plain, mine=mine)
    torch._C._nn.cross_entropy_loss = mine
    if getattr(torch.jit._builtins, "_builtin_table", None) is not None:
        torch.jit._builtins._register_builtin(mine, "aten::cross_entropy_loss")  # for torch.jit.script


def divided(plain, args):
    """Compute a cross entropy in parts. That memory runs out in a part is an error of the job; and a checkpoint ends
    what it computes again by an error."""
    try:
        return losspart.cross_entropy(functools.partial(wall.part, plain), *args)
    except Exception as e:
        if ranout.is_one(e) or is_recomputed():
            wall.raises(plain, e)
            raise
        reason = "%s: %s" % (type(e).__name__, str(e)[:200])
    found = plain(*args)  # or the job's own error
    give_up(reason)
    return found


def in_place(plain, args):
    """Compute a cross entropy in parts if it has too little memory otherwise."""
    logits, failure, began = args[0], None, time.monotonic()
    if logits.numel() >= state["least"]:
        repeats.active([RUNG])
        return divided(plain, args)
    if is_recomputed():
        return plain(*args)
    free = wall.alone(room.free)(logits.device)
    if type(logits) is not upcast.Later and (free is None or free >= needs(logits) * losspart.size(logits)):
        try:
            return plain(*args)
        except BaseException as e:
            if not ranout.is_one(e) or caught.by_a_caller():
                raise
            failure = e
    return again(plain, args, failure, began)


def is_recomputed():
    """Return whether a loss is computed in a backward pass, by a checkpoint: it has to be computed as it was before."""
    return getattr(torch._C, "_current_graph_task_id", lambda: -1)() != -1


def needs(logits):
    """Return how many times the logits' bytes in fp32 PyTorch's own needs."""
    return NEEDS if torch.is_grad_enabled() and logits.requires_grad else WITHOUT


def again(plain, args, failure, began):
    trace, why = failure.__traceback__ if failure is not None else None, None
    if failure is not None:
        repeats.begin("loss")
        garbage.release(failure)
    expandable.use()
    try:
        output = divided(plain, args)
        wall.gives(plain, output)
    except BaseException as e:
        why = failure or e
    finally:
        repeats.end()
    if why is not None:
        repeats.refused("loss", why)
        raise (wall.raising(why) if failure is not None else why).with_traceback(trace or why.__traceback__)
    state["least"] = min(state["least"], args[0].numel())
    if failure is not None:
        repeats.done("loss", RUNG, time.monotonic() - began, failure, elements=args[0].numel(), longest=max(args[0].shape))
    else:
        repeats.entry("loss", RUNG, time.monotonic() - began, elements=args[0].numel(), longest=max(args[0].shape))
        repeats.active([RUNG])
    return output


def degrees():
    """Return for a loss as PyTorch computes it, and for one in parts, the bytes that are held and the part of a step that is
    added to its time; [] where gpurun does not decide that in place."""
    if state["least"] is None or state["on"] or "plain" not in state or state["largest"] < large():
        return []
    return [(int(HOLDS * state["largest"]), 0.0), (0, SLOWER)]


@process.guarded
def seen(size):
    if size <= state["largest"]:
        return
    before, state["largest"] = state["largest"], size
    if before < large() <= size and (process.told.get("refused") or {}).get(KNOB) == UNSEEN:
        del process.told["refused"][KNOB]
        process.save()


def computed():
    """Called where the first backward pass begins: the job has computed a loss, perhaps otherwise."""
    if state["largest"] < large() and not state["on"] and KNOB not in (process.told.get("refused") or {}):
        process.note("refused", {KNOB: UNSEEN})


def stepped():
    """Called before the first optimizer step: small calls are not looked at any more."""
    computed()
    if state["largest"] < large() // 8 and not state["on"]:
        upcast.leave()
        if state["least"] is None:
            leave()


def leave():
    upcast.leave()
    nn = torch._C._nn
    if "plain" in state and nn.cross_entropy_loss is state["mine"]:
        nn.cross_entropy_loss = state["plain"]
        del state["plain"], state["mine"]
