# The optimizer's first step in place: it makes the optimizer's states. Where memory runs out before
# anything was written that had been there, the states that the failed step made are removed, and it
# is done again one parameter at a time (foreach=False).
import contextlib
import functools
import sys
import time
import weakref

from ..base import caught, process, ranout, room, wall
from ..model import exclusions, garbage
from ..observe import optimizers, repeats

# PyTorch's optimizers whose state is theirs alone, and the parameters that states are as large as.
KINDS = {
    "SGD": 1, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 2, "Adagrad": 1, "Adadelta": 2, "Adamax": 2, "Rprop": 2, "ASGD": 1, "Adafactor": 0,
}

PHASE = "optimizer"

stepped: dict = {}  # by id, optimizers whose first step has ended: weak references
singly: weakref.WeakSet = weakref.WeakSet()  # optimizers that step one parameter at a time


def ended(optimizer):
    """Note that the first step of an optimizer has ended."""
    key = id(optimizer)
    stepped[key] = weakref.ref(optimizer, wall.alone(lambda gone: stepped.pop(key, None)))


def permitted():
    orders = process.orders()
    return bool(orders.get("hooks") and (orders.get("in_place") or {}).get("optimizer"))


def wrap(kind):
    """Guard the first steps of an optimizer class of PyTorch. Hooks on steps run outside, once."""
    if not permitted() or not kind.__module__.startswith("torch.optim.") or kind.__name__ not in KINDS:
        return
    whole = kind.step
    if getattr(whole, "gpurun_again", False):
        return
    hooking = getattr(kind, "profile_hook_step", None)  # since PyTorch 2.0
    outside = hooking is not None and getattr(whole, "hooked", False) and hasattr(whole, "__wrapped__")
    plain = whole.__wrapped__ if outside else whole
    compiling = exclusions.recording(sys.modules["torch"])

    @functools.wraps(plain)
    def step(optimizer, *args, **kwargs):
        if id(optimizer) in stepped and (not singly or optimizer not in singly):
            return plain(optimizer, *args, **kwargs)
        return wall.call(plain, steps, wall.ALL, optimizer, *args, **kwargs)

    def steps(own, optimizer, *args, **kwargs):
        if args and args[0] is not None or kwargs.get("closure") is not None or compiling():
            return own(optimizer, *args, **kwargs)
        if id(optimizer) not in stepped:
            return first(optimizer, own, args, kwargs)
        with one_by_one(optimizer):
            return own(optimizer, *args, **kwargs)

    kind.step = hooking(step) if outside else step
    vars(kind.step).update(hooked=True, gpurun_again=True)  # PyTorch puts its own around no more


def first(optimizer, plain, args, kwargs):
    """Do the first step of an optimizer."""
    before = wall.alone(Before)(optimizer)
    short = before is not None and wall.alone(foresee)(optimizer, plain)
    try:
        with one_by_one(optimizer):
            output = plain(optimizer, *args, **kwargs)
    except BaseException as e:
        failure = e if before is not None and ranout.is_one(e) else None
        if failure is None:
            raise
    else:
        ended(optimizer)
        if short:
            wall.alone(repeats.entry)(PHASE, "", 0.0)
        return output
    return again(optimizer, plain, args, kwargs, before, failure)


def again(optimizer, plain, args, kwargs, before, failure):
    """Do a step again that ran out of memory."""
    began, trace, output = time.monotonic(), failure.__traceback__, None
    why = refusal(optimizer, before)
    if not why:
        repeats.begin(PHASE)
        garbage.release(failure)
        before.put_back()
        if process.world() <= 1 and wall.alone(alike)(optimizer, plain):
            singly.add(optimizer)  # ranks that step in different ways would drift apart by rounding
        try:
            with one_by_one(optimizer):
                output = wall.plain(plain)(optimizer, *args, **kwargs)
            wall.gives(plain, output)
        except BaseException as e:
            why = str(e) or type(e).__name__
        finally:
            repeats.end()
    if why:
        repeats.refused(PHASE, why)
        raise wall.raising(failure).with_traceback(trace)
    ended(optimizer)
    repeats.done(PHASE, "", time.monotonic() - began, failure)
    return output


def refusal(optimizer, before):
    """Return why a failed step cannot be done again, "" if it can."""
    by = caught.by_a_caller()
    if by:
        return "the job handles the error itself (%s)" % by
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "the optimizer's step is differentiated"
    return before.written()


class Before:
    """What an optimizer has before a step."""

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.parameters = [(p, p._version, p.grad, None if p.grad is None else p.grad._version) for group in optimizer.param_groups for p in group["params"]]
        self.states = {p: (dict(state), [(v, v._version) for v in state.values() if hasattr(v, "_version")]) for p, state in optimizer.state.items()}

    def written(self):
        """Return what was written to since, "" for nothing."""
        for p, version, gradient, its in self.parameters:
            if p._version != version:
                return "a parameter was written to before memory ran out"
            if p.grad is not gradient or gradient is not None and gradient._version != its:
                return "a gradient was written to before memory ran out"
        if any(v._version != version for _, tensors in self.states.values() for v, version in tensors):
            return "a state was written to before memory ran out"
        return ""

    def put_back(self):
        """Remove the states that were made since."""
        states = self.optimizer().state
        for p in list(states):
            if p not in self.states:
                del states[p]
            else:
                states[p].clear()
                states[p].update(self.states[p][0])


@contextlib.contextmanager
def one_by_one(optimizer):
    """Have an optimizer that is short of memory step one parameter at a time."""
    if optimizer not in singly:
        yield
        return
    groups = [(group, group["foreach"]) for group in optimizer.param_groups if "foreach" in group and not group.get("fused")]
    for group, _ in groups:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, value in groups:
            group["foreach"] = value


def alike(optimizer, plain):
    """Return whether an optimizer comes to the same parameters by both ways to step: on small tensors."""
    torch, found = sys.modules["torch"], []
    for foreach in (True, False):
        groups, x = [], torch.linspace(-1, 1, 12).reshape(3, 4)
        for i, group in enumerate(optimizer.param_groups):
            options = {k: float(v) if hasattr(v, "item") else v for k, v in group.items() if k not in ("params", "foreach", "fused", "capturable")}
            groups.append(dict(options, params=[torch.nn.Parameter(x + i), torch.nn.Parameter(x[0] - i)], foreach=foreach))
        other = type(optimizer)(groups)
        for step in range(2):
            for group in groups:
                for p in group["params"]:
                    p.grad = torch.linspace(-1, 1 + step, p.numel()).reshape(p.shape)
            plain(other)
        found.append([p.detach() for group in groups for p in group["params"]])
    return all(torch.allclose(a, b, rtol=1e-6, atol=1e-8) for a, b in zip(*found))


def foresee(optimizer, plain):
    """Return whether the first step is short of memory: the temporary tensors of all parameters at
    once do not fit beside the states. Then it would fail once parameters are written to."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if not parameters or process.world() > 1 or not optimizers.of(optimizer)["foreach"] or any(group.get("foreach") for group in optimizer.param_groups):
        return False
    free = room.free(parameters[0].device)
    size = sum(p.numel() * p.element_size() for p in parameters)
    states = 0 if optimizer.state else KINDS[type(optimizer).__name__]
    decays = any(group.get("weight_decay") and not group.get("decoupled_weight_decay", type(optimizer).__name__ == "AdamW") for group in optimizer.param_groups)
    if free is None or free >= size * (states + 1 + decays) or not alike(optimizer, plain):
        return False
    singly.add(optimizer)
    return True
