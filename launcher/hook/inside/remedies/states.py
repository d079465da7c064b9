# The optimizer's states in host memory. A step goes through the parameters in parts: the states of a part are copied to
# the device, the optimizer's own step runs for these parameters only, and the states are copied back, while those of
# the next part come. It is the arithmetic of the whole step, because these optimizers treat each parameter by itself.
#
# Between steps a state in host memory is a tensor of the device still (hosttensors.py), the same object with the same
# values: checkpoints, and the job's own code, read it as before.
import contextlib
import functools
import sys
import weakref

import torch

from ..base import process, ranout, room, session, wall
from ..model import garbage, optimizerstate
from ..observe import optimizers
from . import hosttensors, remedy, visits

VALUES = ("cpu",)
NAME = "offload-optimizer"

# PyTorch's optimizers whose state is theirs alone, and the parameters that states are as large as.
KINDS = {
    "SGD": 1, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 2, "Adagrad": 1, "Adadelta": 2, "Adamax": 2, "Rprop": 2, "ASGD": 1, "Adafactor": 0,
}
DEVICES = ("cuda",)
PART = 256 << 20  # bytes of states that visit the device at once
SMALLEST = 64 << 10  # bytes of a state that is worth the way
MARGIN = 16  # this part of the device's memory is kept free of states
ROWS = 64  # elements of a parameter by which the parts of a step are compared with the whole

plains: dict = {}  # by class, its step without hooks
offloaded: dict = {}  # by id, optimizers that step in parts
ordered = {"on": False}  # whether states leave from the first step on


def known(kind):
    """Return whether an optimizer class is one of PyTorch's own that treats each parameter by itself."""
    return kind.__module__.startswith("torch.optim.") and kind.__name__ in KINDS and kind.__name__ != "Adafactor"


def refusal(root, value="cpu"):
    """Return why the states cannot leave the device from the first step on, "" if they can."""
    why = elsewhere(next((p.device for p in root.parameters()), torch.device("cpu")))
    for optimizer in training(root) if not why else ():
        why = why or irregular(optimizer) or too_large(optimizer)
    return why


def devices(known):
    return {p.device for optimizer in known for p in optimizerstate.parameters_of(optimizer)}


def elsewhere(device):
    """Return why no states can leave a device, "" if they can."""
    if device.type in DEVICES:
        return ""
    return "the model trains on %s" % ("the CPU" if device.type == "cpu" else device.type)


def training(root):
    return [o for o in optimizers.alive() if optimizers.trains(o, root)]


def turn(root, value="cpu", tell=None):
    """Have the states of all optimizers leave the device, and return [old, new]."""
    ordered["on"] = True
    for optimizer in training(root):
        if optimizer.state:  # else the first step makes them, and shows how many can stay
            leave(optimizer, 0)
    return ["none", value]


def irregular(optimizer):
    """Return why an optimizer cannot step in parts, "" if it can."""
    kind, parameters = type(optimizer), optimizerstate.parameters_of(optimizer)
    if not known(kind):
        return "%s is not known to treat each parameter by itself" % kind.__name__
    if any(group.get("capturable") for group in optimizer.param_groups):
        return "the optimizer's step may be part of a CUDA graph (capturable)"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "the optimizer's step is differentiated"
    if any(p.grad is not None and p.grad.layout != torch.strided for p in parameters):
        return "gradients are sparse"
    if any(type(p) not in (torch.Tensor, torch.nn.Parameter) for p in parameters):
        return "parameters are shared out, or of a class that is not PyTorch's own"
    if len({p.device for p in parameters}) > 1:
        return "the parameters are on several devices"
    if not all(alike_in_layout(optimizer, p) for p in parameters):
        return "a gradient or a state has another layout than its parameter"
    return ""


def alike_in_layout(optimizer, p):
    """Return whether a step over several parameters takes the same kernels for this one as for others."""
    if p.layout != torch.strided or not hosttensors.is_dense(p):
        return False
    others = [p.grad] if p.grad is not None else []
    others += [v for v in (optimizer.state.get(p) or {}).values() if torch.is_tensor(v) and v.dim()]
    return all(v.stride() == p.stride() for v in others if v.size() == p.size())


def too_large(optimizer, spare=0):
    """Return why the host cannot take an optimizer's states but for so many bytes, "" if it can."""
    need, host = expected(optimizer, optimizerstate.parameters_of(optimizer)) - away(optimizer) - spare, room.host()
    if need <= host:
        return ""
    return "%.1f GiB of the optimizer's states would leave, and each rank can have %.1f GiB of the host's memory" % (need / 2.0**30, host / 2.0**30)


def expected(optimizer, parameters):
    """Return the bytes that the states of parameters are expected to take."""
    return KINDS[type(optimizer).__name__] * sum(hosttensors.bytes_of(p) for p in parameters if p.requires_grad)


def begin(optimizer):
    """Have an optimizer step in parts. Return why it cannot, "" if it does."""
    key, plain = id(optimizer), plains.get(type(optimizer))
    if key in offloaded:
        return ""
    why = irregular(optimizer)
    if not why and plain is None:
        why = "the steps of %s are not guarded" % type(optimizer).__name__
    why = why or differs(optimizer, plain)
    if not why:
        offloaded[key] = Offloaded(weakref.ref(optimizer, wall.alone(lambda gone: offloaded.pop(key, None))), plain)
    return why


def leave(optimizer, spare):
    """Have an optimizer's states leave the device but for so many bytes, now and where they are made. Return why they
    cannot, "" if they do."""
    key = id(optimizer)
    before, why = key in offloaded, begin(optimizer)
    if not why:
        why = offloaded[key].allow(spare)
    if why and not before:
        offloaded.pop(key, None)
    return why


def left(optimizer):
    """Return whether states of an optimizer are in host memory."""
    return id(optimizer) in offloaded and bool(offloaded[id(optimizer)].entries)


def away(optimizer):
    """Return the bytes of an optimizer's states in host memory."""
    return offloaded[id(optimizer)].away() if left(optimizer) else 0


def announce():
    """Have the passes of the guarded module note that the remedy is on, wherever it was turned on."""
    guard = session.current.guard
    for each in guard.remedies if guard is not None else ():
        if each.name == NAME:
            each.arm(0, 0)


def differs(optimizer, plain):
    """Return why the parts of a step come to something else than the whole, "" if they do not: by two steps of an optimizer
    of the same settings with two small parameters in each group."""
    found = []
    with torch.no_grad():
        for apart in (False, True):
            other = copied(optimizer)
            every = optimizerstate.parameters_of(other)
            for step in range(2):
                for p in every:
                    p.grad = torch.linspace(-1, 1 + step, p.numel(), device=p.device).to(p.dtype)
                if not apart:
                    plain(other)
                    continue
                for group in other.param_groups:
                    for p in group["params"]:
                        with only(other, group, [p]):
                            plain(other)
            found.append([p.detach() for p in every] + [v for p in every for v in other.state[p].values() if torch.is_tensor(v)])
    whole, parts = found
    if len(whole) == len(parts) and all(torch.equal(a, b) for a, b in zip(whole, parts)):
        return ""
    return "the optimizer's step over some of the parameters differs from that over all"


def copied(optimizer):
    """Return an optimizer of the same settings with two small parameters in each group."""
    groups = []
    for i, group in enumerate(optimizer.param_groups):
        if group["params"]:
            options = {k: v.clone() if torch.is_tensor(v) else v for k, v in group.items() if k not in ("params", "param_names")}
            first = group["params"][0]
            small = [torch.linspace(-1, 1 + i, ROWS + j, device=first.device).to(first.dtype) for j in range(2)]
            groups.append(dict(options, params=[torch.nn.Parameter(p) for p in small]))
    return type(optimizer)(groups)


@contextlib.contextmanager
def only(optimizer, group, parameters):
    """Have an optimizer know these parameters of one group only."""
    groups, every = optimizer.param_groups, group["params"]
    group["params"], optimizer.param_groups = parameters, [group]
    try:
        yield
    finally:
        group["params"], optimizer.param_groups = every, groups


class Entry:
    """A state in host memory: the tensor of the job, and the two that have its memory."""

    def __init__(self, tensor, forget):
        self.tensor, self.visiting, self.host, self.face = weakref.ref(tensor, forget), False, None, None


class Part(visits.Part):
    """Some parameters of a group, which step together."""

    def __init__(self, group):
        super().__init__()
        self.group, self.parameters, self.cost, self.more = group, [], 0, 0


class Offloaded:
    """An optimizer that steps in parts. Of its states so many bytes may stay on the device as spare says; None is all that fit."""

    def __init__(self, optimizer, plain):
        self.optimizer, self.plain, self.spare = optimizer, plain, None
        self.entries: dict = {}  # by the id of a state
        self.arena = self.way = None

    def allow(self, spare):
        """Let states leave the device but for so many bytes. Return why they cannot, "" if they can."""
        device = optimizerstate.parameters_of(self.optimizer())[0].device
        why = elsewhere(device) or too_large(self.optimizer(), spare)
        if why:
            return why
        try:
            self.arena = self.arena or hosttensors.Arena(device)
        except hosttensors.NoRoom as e:
            return str(e)
        self.spare = spare if self.spare is None else min(spare, self.spare)
        session.current.away = away
        wrap_loading(type(self.optimizer()))
        self.trim()
        return ""

    # Where the states are.

    def states(self, parameters=None):
        """Return the states that may leave the device, of some parameters or of all."""
        optimizer, found = self.optimizer(), []
        for p in optimizerstate.parameters_of(optimizer) if parameters is None else parameters:
            for v in (optimizer.state.get(p) or {}).values():
                if torch.is_tensor(v) and movable(v, p):
                    found.append(v)
        return found

    def entry(self, tensor):
        """Return the entry of a state that is in host memory, or is from there; None for another one."""
        found = self.entries.get(id(tensor))
        if found is None or found.tensor() is not tensor:
            return None
        return found if found.visiting or tensor.data_ptr() == found.face.data_ptr() else None

    def home(self, parameters=None):
        """Return the states that are on the device."""
        return [v for v in self.states(parameters) if self.entry(v) is None]

    def away(self):
        """Return the bytes of states in host memory."""
        return sum(hosttensors.bytes_of(v) for v in self.states() if self.entry(v) is not None)

    def leave(self, need, parameters=None):
        """Move states to host memory until so many bytes of the device are given back. Return how many are."""
        given = 0
        for tensor in self.home(parameters):
            if given >= need:
                break
            try:
                host, face = self.arena.pair(tensor)
            except hosttensors.NoRoom:
                break
            host.copy_(tensor)
            self.enter(tensor, host, face)
            given += hosttensors.bytes_of(tensor)
        return given

    def enter(self, tensor, host, face):
        key = id(tensor)
        entry = Entry(tensor, wall.alone(lambda gone: self.entries.pop(key, None)))
        entry.host, entry.face = host, face
        self.entries[key] = entry
        if tensor is not face:
            tensor.data = face.data

    def trim(self, parameters=None):
        """Have states leave that take more of the device than they may."""
        if self.spare is not None:
            held = sum(map(hosttensors.bytes_of, self.home()))
            if held > self.spare:
                self.leave(held - self.spare, parameters)

    # The step.

    def step(self, own, args, kwargs, skipped=0):
        """Do a step in parts. The groups that were done already are skipped. A closure runs first, as in PyTorch."""
        optimizer = self.optimizer()
        if len(args) > 1 or set(kwargs) - {"closure"} or irregular(optimizer):
            return wall.inner(own, self.plain, optimizer, *args, **kwargs)  # on the states where they are
        closure, loss = args[0] if args else kwargs.get("closure"), None
        if closure is not None:
            with torch.enable_grad():
                loss = wall.inner(own, closure)
        self.run(own, optimizer, self.parts(optimizer, skipped))
        self.trim()
        return loss

    def parts(self, optimizer, skipped):
        """Return the parts of a step."""
        free = next((room.free(p.device) for p in optimizerstate.parameters_of(optimizer)), None)
        most = PART if free is None else min(PART, max(free // 4, 1))
        times, found = 2 if optimizers.of(optimizer)["foreach"] else 0, []
        for group in optimizer.param_groups[skipped:]:
            part = None
            for p in group["params"]:
                if p.grad is None:
                    continue
                there = [self.entry(v) for v in self.states([p])]
                moved, more = sum(hosttensors.bytes_of(e.host) for e in there if e is not None), times * hosttensors.bytes_of(p)
                if not optimizer.state.get(p):
                    more += expected(optimizer, [p])
                if part is None or part.cost + moved + more > most:
                    part = Part(group)
                    found.append(part)
                part.parameters.append(p)
                part.entries += [e for e in there if e is not None]
                part.cost, part.more = part.cost + moved + more, part.more + more
        return found

    def run(self, own, optimizer, parts):
        """Do the parts, each while the states of the next one come."""
        if not parts:
            return
        device = parts[0].parameters[0].device
        self.way = self.way or visits.way(device)
        with self.way.under_way(parts, device, self.make_room) as going:
            for i, part in enumerate(parts):
                going.come(i)
                if visits.fits(0, 0, part.more, device) is None:  # states of earlier parts have stayed
                    self.make_room(part.more, part.parameters)
                self.attempt(own, optimizer, part)
                going.leave(i)
                self.trim(part.parameters)

    def attempt(self, own, optimizer, part):
        """Do one part. Where memory runs out before anything was written, one parameter is done after the other."""
        with only(optimizer, part.group, part.parameters):
            failure = self.tried(own, optimizer, part.parameters)
        for p in part.parameters if failure is not None else ():
            self.make_room(2 * ranout.figure(ranout.SIZE, failure), part.parameters)
            with only(optimizer, part.group, [p]):
                again = self.tried(own, optimizer, [p])
                if again is not None:
                    self.make_room(sys.maxsize, part.parameters)
                    wall.inner(own, self.plain, optimizer)

    def tried(self, own, optimizer, parameters):
        """Return None, or the error by which memory ran out before anything was written."""
        before = optimizerstate.Before(optimizer, parameters)
        try:
            wall.inner(own, self.plain, optimizer)
            return None
        except BaseException as e:
            if not ranout.is_one(e) or before.written():
                raise
            failure = e
        garbage.clear(failure)
        before.put_back()
        return failure

    def make_room(self, need, but=()):
        """Have states of other parameters leave, of any optimizer, until so many bytes are free. Return whether some left."""
        left = 0
        for one in list(offloaded.values()):
            if one.spare is not None and left < need:
                skip = set(map(id, but))
                left += one.leave(need - left, [p for p in optimizerstate.parameters_of(one.optimizer()) if id(p) not in skip])
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return left > 0

    # Checkpoints.

    def prepared(self, state_dict):
        """Return a checkpoint whose states are in host memory, as far as they are to be there."""
        optimizer, saved = self.optimizer(), state_dict.get("param_groups") or []
        ids = [i for group in saved for i in group["params"]]
        parameters = optimizerstate.parameters_of(optimizer)
        if self.spare is None or len(ids) != len(parameters):
            return state_dict
        states, known = dict(state_dict["state"]), dict(zip(ids, parameters))
        for key, state in states.items():
            if key in known and isinstance(state, dict):
                states[key] = type(state)((name, self.received(v, known[key])) for name, v in state.items()) if type(state) is dict else state
        return dict(state_dict, state=states)

    def received(self, value, p):
        """Return a saved state in host memory, or the value itself."""
        if not torch.is_tensor(value) or not value.dim() or value.layout != torch.strided or not hosttensors.is_dense(value):
            return value
        dtype = p.dtype if p.is_floating_point() else value.dtype
        like = torch.empty_strided(value.size(), value.stride(), dtype=dtype, device="meta")
        if hosttensors.bytes_of(like) < SMALLEST or value.device == p.device and value.dtype == dtype:  # PyTorch takes such a tensor as it is
            return value
        try:
            host, face = self.arena.pair(like)
        except hosttensors.NoRoom:
            return value
        host.copy_(value)
        self.enter(face, host, face.detach())
        return face


def movable(tensor, p):
    """Return whether a state may leave the device: it is an ordinary tensor with memory for itself."""
    size = hosttensors.bytes_of(tensor)
    return (type(tensor) is torch.Tensor and tensor.dim() > 0 and tensor.device == p.device and size >= SMALLEST and not tensor.requires_grad
            and tensor.layout == torch.strided and hosttensors.is_dense(tensor) and not is_inference(tensor))


def is_inference(tensor):
    return getattr(tensor, "is_inference", lambda: False)()


def left_beside(device, held, peak):
    """Return the bytes of a device that are left beside all that was held before the step, and at most: the next step needs
    it again. None where that is not known."""
    allowed = room.allowed(device)
    return max(allowed - max(peak, held + visits.SLOTS * PART) - allowed // MARGIN, 0) if allowed and peak else None


def wrap_loading(kind):
    """Have load_state_dict of a class put the states of such optimizers where they are to be."""
    plain = kind.load_state_dict
    if getattr(plain, "gpurun_states", False):
        return

    def loads(own, optimizer, state_dict, *args, **kwargs):
        if planned() and id(optimizer) not in offloaded:
            leave(optimizer, 0)
        one = offloaded.get(id(optimizer))
        if one is None:
            return own(optimizer, state_dict, *args, **kwargs)
        result = own(optimizer, one.prepared(state_dict), *args, **kwargs)
        one.trim()
        return result

    kind.load_state_dict = functools.wraps(plain)(wall.wrapped(plain, loads, wall.ALL))
    vars(kind.load_state_dict).update(gpurun_states=True)


def planned():
    """Return whether gpurun's plan has the states in host memory."""
    return (process.orders().get("turn") or {}).get("offload_optimizer") == "cpu"


class States(remedy.Remedy):
    """For passes that run out of memory: the optimizer's states leave the device."""

    name, alone = NAME, True

    def refusal(self, calls):
        known = training(self.guard.root())
        why = next((why for why in map(irregular, known) if why), "") or next((why for why in map(elsewhere, devices(known)) if why), "")
        return why or ("" if any(map(bytes_home, known)) else "no state of an optimizer is on the device")

    def levels(self, calls):
        for share in (4, 2, 1):
            for optimizer in training(self.guard.root()):
                held = bytes_home(optimizer)
                why = leave(optimizer, held - held // share) if held else ""
                if why:
                    self.guard.say_unfit("%s: %s" % (NAME, why))
                    return
            garbage.collect()
            yield

    def begins(self, size, longest):
        self.active = any(one.entries for one in offloaded.values())
        return self.active

    def arm(self, size, longest, parts=0):
        ordered["on"] = True
        super().arm(1, 1)


def bytes_home(optimizer):
    """Return the bytes of an optimizer's states on the device that may leave it."""
    one = offloaded.get(id(optimizer)) or Offloaded(lambda: optimizer, None)
    return sum(map(hosttensors.bytes_of, one.home()))
