# The optimizer's steps in place. Where memory runs out before anything was written that had been there, the states that
# the failed step made are removed, and the rest of the step is done in parts of the parameters (remedies/states.py);
# where that does not suffice, and gpurun permits it, states leave the device.
import functools
import os
import sys
import time
import weakref

import torch

from ..base import caught, meters, process, ranout, room, wall
from ..model import exclusions, garbage, optimizerstate
from ..observe import optimizers, repeats
from ..remedies import expandable, states

PHASE = "optimizer"
ORDERED, SHORT = "ordered", "short"  # why an optimizer steps in parts from its first step on
OPTIM = os.path.dirname(sys.modules["torch.optim.optimizer"].__file__) + os.sep

ROOM = 4  # an optimizer is looked at before each step where its temporary tensors would not fit so many times

stepped: dict = {}  # by id, optimizers whose first step has ended: weak references
watched: weakref.WeakSet = weakref.WeakSet()  # optimizers that are looked at before each step


def ended(optimizer):
    """Note that the first step of an optimizer has ended."""
    key = id(optimizer)
    stepped[key] = weakref.ref(optimizer, wall.alone(lambda gone: stepped.pop(key, None)))


def permitted():
    orders = process.orders()
    return bool(orders.get("hooks") and ((orders.get("in_place") or {}).get("optimizer") or states.planned()))


def leaves():
    """Return whether gpurun permits states to leave the device."""
    return states.planned() or states.NAME in ((process.orders().get("in_place") or {}).get("rungs") or ())


def wrap(kind):
    """Guard the steps of an optimizer class of PyTorch. Hooks on steps run outside, once."""
    if not permitted() or not kind.__module__.startswith("torch.optim.") or kind.__name__ not in states.KINDS:
        return
    if states.planned():
        states.wrap_loading(kind)
    whole = kind.step
    if getattr(whole, "gpurun_again", False):  # maybe that of the class above
        states.plains.update((kind, states.plains[base]) for base in kind.__mro__[::-1] if base in states.plains)
        return
    hooking = getattr(kind, "profile_hook_step", None)  # since PyTorch 2.0
    outside = hooking is not None and getattr(whole, "hooked", False) and hasattr(whole, "__wrapped__")
    plain = whole.__wrapped__ if outside else whole
    compiling, offloaded = exclusions.recording(torch), states.offloaded
    states.plains[kind] = plain

    @functools.wraps(plain)
    def step(optimizer, *args, **kwargs):
        if id(optimizer) not in stepped or offloaded and id(optimizer) in offloaded:
            return wall.call(plain, steps, wall.ALL, optimizer, *args, **kwargs)
        try:
            return plain(optimizer, *args, **kwargs)
        except BaseException as e:
            if not ranout.is_one(e):
                raise
            failure = e
        return wall.call(raises(failure), lambda own: later(own, plain, optimizer, failure), wall.ALL)

    def steps(own, optimizer, *args, **kwargs):
        if compiling():
            return own(optimizer, *args, **kwargs)
        if optimizer in watched:
            return watches(own, optimizer, args, kwargs)
        if id(optimizer) not in stepped:
            return first(optimizer, plain, own, args, kwargs)
        return states.offloaded[id(optimizer)].step(own, args, kwargs)

    kind.step = hooking(step) if outside else step
    vars(kind.step).update(hooked=True, gpurun_again=True)  # PyTorch puts its own around no more


def raises(failure):
    """Return a function that raises an error of the job."""
    def fails():
        raise failure

    return fails


def first(optimizer, plain, own, args, kwargs):
    """Do the first step of an optimizer."""
    loss = None
    if len(args) > 1 or set(kwargs) - {"closure"}:
        output = own(optimizer, *args, **kwargs)
        ended(optimizer)
        return output
    closure = args[0] if args else kwargs.get("closure")
    if closure is not None:  # PyTorch's optimizers call it first, too
        with torch.enable_grad():
            loss = wall.inner(own, closure)
    before = wall.alone(Before)(optimizer)
    how = wall.alone(ahead)(optimizer, before) if before is not None else ""
    if how:
        states.offloaded[id(optimizer)].step(own, (), {})
        if how == SHORT:
            wall.alone(foreseen)(optimizer)
        return over(own, optimizer, loss)
    try:
        output = own(optimizer) if closure is None else wall.inner(own, plain, optimizer)
    except BaseException as e:
        failure = e if before is not None and ranout.is_one(e) else None
        if failure is None:
            raise
    else:
        if closure is not None:
            output = loss
        return over(own, optimizer, output)
    again(own, plain, optimizer, before, failure, *part_done(optimizer, before, failure))
    return over(own, optimizer, loss)


def over(own, optimizer, loss):
    """Note the end of the first step, and what it returns."""
    if id(optimizer) in states.offloaded or not wall.alone(short)(optimizer, ROOM):
        ended(optimizer)
    else:
        watched.add(optimizer)
    wall.gives(own, loss)
    return loss


def watches(own, optimizer, args, kwargs):
    """Do a later step of an optimizer that is looked at before each step, for it was near the end of the memory."""
    if wall.alone(short)(optimizer) and not states.begin(optimizer):
        watched.discard(optimizer)
        ended(optimizer)
        if leaves():
            states.leave(optimizer, states.bytes_home(optimizer))
        output = states.offloaded[id(optimizer)].step(own, args, kwargs)
        wall.alone(foreseen)(optimizer)
        return output
    return own(optimizer, *args, **kwargs)


def ahead(optimizer, before):
    """Have an optimizer step in parts from its first step on where that is ordered, or memory is short. Return which of
    them it is, "" for neither."""
    if states.ordered["on"] and not states.leave(optimizer, before.spare()) or id(optimizer) in states.offloaded:
        return ORDERED
    if not short(optimizer) or states.begin(optimizer):
        return ""
    if leaves():
        states.leave(optimizer, before.spare())
    return SHORT


def foreseen(optimizer):
    """Report a step that was done in parts since memory was short, and whether states have left."""
    if states.left(optimizer):
        states.announce()
        repeats.entry(PHASE, states.NAME, 0.0, elements=1, longest=1)
    else:
        repeats.entry(PHASE, "", 0.0)


def later(own, plain, optimizer, failure):
    """Answer an error of memory in a later step."""
    skipped, why, loss = begun(optimizer, failure)
    before = Before(optimizer)
    again(own, plain, optimizer, before, failure, skipped, why)
    wall.gives(own, loss)
    return loss


def part_done(optimizer, before, failure):
    """Return how many groups a failed first step has done, and why it cannot be done again, "" if it can."""
    why = before.written()
    if not why:
        return 0, ""
    skipped, refused, _ = begun(optimizer, failure)
    return skipped, refused and why or before.written(skipped)


def begun(optimizer, failure):
    """Return how many groups a failed step has done, why the rest of it cannot be done, "" if it can, and what the step
    would return. PyTorch's optimizers first gather the states of a group, and make those that are missing, in step itself or
    in _init_group; nothing of the group is written to until they are complete."""
    frames = ranout.frames_of(failure.__traceback__)
    at = next((i for i, frame in enumerate(frames) if frame.f_code.co_name == "step" and frame.f_code.co_filename.startswith(OPTIM) and frame.f_locals.get("self") is optimizer), None)
    if at is None:
        return 0, "memory ran out outside of the optimizer's own code", None
    inner = [frame for frame in frames[:at] if frame.f_code.co_filename.startswith(OPTIM)]
    held, within = frames[at].f_locals, inner[-1].f_locals if inner else frames[at].f_locals
    place = next((i for i, group in enumerate(optimizer.param_groups) if group is held.get("group")), None)
    if place is None or [frame.f_code.co_name for frame in inner] not in ([], ["_init_group"]):
        return 0, "memory ran out in the midst of the arithmetic of a step", None
    p = within.get("p")
    made = optimizer.state.get(p) if p is not None else None
    if made:
        if "step" in made and float(made["step"]) != 0:
            return 0, "memory ran out after the states were complete", None
        del optimizer.state[p]
    return place, "", held.get("loss")


def again(own, plain, optimizer, before, failure, skipped, why):
    """Do the rest of a step that ran out of memory, but for so many groups."""
    began, trace = time.monotonic(), failure.__traceback__
    why = why or refusal(optimizer)
    if not why:
        repeats.begin(PHASE)
        garbage.release(failure)
        expandable.use()
        before.put_back(skipped)
        try:
            why = rest(own, plain, optimizer, before, skipped)
        except BaseException as e:
            why = str(e) or type(e).__name__
        finally:
            repeats.end()
    if why:
        repeats.refused(PHASE, why)
        raise wall.raising(failure).with_traceback(trace)
    took = time.monotonic() - began
    if states.left(optimizer):
        states.announce()
        repeats.done(PHASE, states.NAME, took, failure, 1, 1)
    else:
        repeats.done(PHASE, "", took, failure)


def rest(own, plain, optimizer, before, skipped):
    """Do the rest of a step in parts; return why that is impossible, "" where it is done."""
    why = states.begin(optimizer)
    if why and skipped:
        return why
    if why:  # what the failed pass held may suffice
        wall.inner(own, plain, optimizer)
        return ""
    if leaves():
        states.leave(optimizer, before.spare())
    states.offloaded[id(optimizer)].step(own, (), {}, skipped)
    return ""


def refusal(optimizer):
    """Return why a failed step cannot be done again, "" if it can."""
    by = caught.by_a_caller()
    if by:
        return "the job handles the error itself (%s)" % by
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "the optimizer's step is differentiated"
    return ""


class Before(optimizerstate.Before):
    """What an optimizer has before a step, and the memory that was needed by then."""

    def __init__(self, optimizer):
        super().__init__(optimizer)
        self.device = next((p.device for p, *_ in self.parameters), None)
        self.memory = meters.of(self.device).read() if self.device is not None else (0, 0)
        self.home = states.bytes_home(optimizer)

    def spare(self):
        """Return the bytes of states that may stay on the device."""
        beside = states.left_beside(self.device, *self.memory)
        return 0 if beside is None else self.home + beside


def short(optimizer, times=1):
    """Return whether a step is short of memory: the temporary tensors of all parameters at once do not fit so many times
    beside the states. Then it would fail once parameters are written to."""
    parameters = [p for p in optimizerstate.parameters_of(optimizer) if p.grad is not None]
    if not parameters or not optimizers.of(optimizer)["foreach"]:
        return False
    free = room.free(parameters[0].device)
    size = sum(p.numel() * p.element_size() for p in parameters)
    made = 0 if optimizer.state else states.KINDS.get(type(optimizer).__name__, 0)
    decays = any(group.get("weight_decay") and not group.get("decoupled_weight_decay", type(optimizer).__name__ == "AdamW") for group in optimizer.param_groups)
    return free is not None and free < size * (made + times * (1 + decays))
