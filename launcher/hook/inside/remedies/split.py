# The root in parts of the batch: its forward runs without gradients, part by part, and its
# backward runs each part again with gradients, against its rows of the outputs' gradient. The
# job's loop and its loss see the whole batch; each parameter gets the sum of the parts'
# gradients once. It is exact where each row of the output depends on the same row of the
# input alone, which a few rows show first (rows.py). Dropout draws other numbers than in one
# call.
import functools
import random
import sys
import time
import traceback
import typing
import weakref

import torch

from ..base import process, ranout, session, wall
from ..model import blocks, callstate, exclusions, forwards, garbage, kinds, modulestate, oldgraph, places, root as root_part, rootstate, rows, values
from ..observe import loaders, loss, repeats, twice
from . import recompute, remedy

VALUES = (2, 4, 8, 16, 32)
KNOB = "forward_parts"
UNASKED = "whether its rows depend on each other is asked when memory runs out"

MOST_TRIED = 8  # parts, where fewer were enough
AGAIN, EACH = 1 / 3, .05  # of a step's time: a second forward, and twice as many parts
CANDIDATES = 8  # inputs whose first dimension may be the batch by chance
IGNORED = -100  # PyTorch's label that counts for no loss

state: dict = {}  # first: what the first call of the root showed


class Unfit(Exception):
    """Says why a call cannot run in parts."""


# As a planned remedy: see rungs.py.


def look(root, args, kwargs):
    """Examines a call of the root. Returns whether the rows depend on each other, as rows.py does."""
    split = state["first"] = Split(root)
    if twice.forwards_seen:
        state["refusal"] = twice.FORWARD
        return rows.Answer("unknown", twice.FORWARD)
    try:
        call = split.call_of(args, kwargs)
    except rows.Unknown as e:
        state["refusal"] = str(e)
        return rows.Answer("unknown", str(e))
    try:
        split.answer(call)
        state["refusal"] = ""
    except Unfit as e:
        state["refusal"] = str(e)
    return call.said


def answered(root, answer):
    """Report whether the rows of the model depend on each other, and what follows for a plan in parts."""
    loss.model_rows(answer.word, answer.reason)
    why, refused = refusal(root), process.told.setdefault("refused", {})
    if why:
        refused[KNOB] = why
    else:
        refused.pop(KNOB, None)


def planned(root, args, kwargs):
    """Examine the first call of an attempt that is planned to run in parts."""
    if KNOB in (process.orders().get("turn") or {}):
        answer = look(root, args, kwargs)
        loss.model_rows(answer.word, answer.reason)


def refusal(root, value=2):
    """Return why the model cannot run in parts of its batch, "" if it can."""
    return exclusions.reason(root) or state.get("refusal", UNASKED)


def turn(root, value=2, tell=None):
    """Has all calls of the model run in parts, and returns [old, new]."""
    split = state["turned"] = state.pop("first")
    split.tell, split.parts = tell, {True: value, False: value}
    split.halved = halved
    split.halves = "split" in ((process.orders().get("in_place") or {}).get("rungs") or ())
    split.between(root)
    return [1, value]


def halved(call, phase, failure, seconds):
    """Comes after a part of a planned split did not fit."""
    repeats.done(phase, "split", seconds, failure, parts=state["turned"].parts[call.grad])


class Split:
    """Runs the calls of a model in parts."""

    def __init__(self, root, module=None):
        self.module, self.root, self.tell = weakref.ref(module or blocks.unwrap(root)), weakref.ref(root), None
        self.answers, self.busy = {}, False
        self.parts = {True: 1, False: 1}  # by whether gradients are computed
        self.halves, self.halved = False, None  # whether parts are halved where memory runs out; halved(call, phase, failure, seconds) comes then
        self.fitted = 0  # rows of a part that was seen to go through forward and backward

    def between(self, root):
        """Puts itself between the job and the model's calls, this first one included."""
        module = self.module()
        forwards.call(module, lambda module, plain, args, kwargs: self.run(plain, args, kwargs))
        if module is root:
            root_part.through(self.run)

    def fail(self, why):
        """Ends a backward pass that cannot be computed in parts."""
        if self.tell:
            self.tell(why)
        raise wall.Differs("gpurun runs no part of the batch of this job by itself: " + why)

    def call_of(self, args, kwargs):
        return Call(self.module(), args, kwargs, torch.is_grad_enabled())

    def run(self, plain, args, kwargs):
        """Call the model, in parts where that is to be done and can be."""
        module = self.module()
        grad = torch.is_grad_enabled()
        if self.busy or self.parts[grad] < 2 or torch.jit.is_tracing() or not recompute.hooks_allowed(torch):
            return plain(module, *args, **kwargs)
        try:
            call = self.call_of(args, kwargs)
            parts = Parts(self, plain, call, self.answer(call)) if call.batch.rows > 1 else None
        except (Unfit, rows.Unknown) as e:
            if self.tell and grad:
                self.tell(str(e))
            parts = None
        return parts.run() if parts is not None else plain(module, *args, **kwargs)

    def parted(self, plain, args, kwargs):
        """Call the model in parts. Raises Unfit or Unknown where that cannot be done."""
        call = self.call_of(args, kwargs)
        return Parts(self, plain, call, self.answer(call)).run()

    def answer(self, call, known=False):
        """Return what calls of this kind compute; None where that is not known, and only what is
        known is wanted. Raises Unfit where they cannot run in parts."""
        key = call.signature()
        if key not in self.answers:
            first = state.get("first")
            if first is not None and first.module() is call.module and key in first.answers:
                self.answers[key] = first.answers[key]
            elif known:
                return None
            else:
                try:
                    self.answers[key] = self.examine(call)
                except Unfit as e:
                    self.answers[key] = str(e)
        found = self.answers[key]
        if isinstance(found, str):
            raise Unfit(found)
        return found

    def examine(self, call):
        why = unfit(self.root(), call.module)
        for whole in call.readings():
            answer = Answer(call, whole)
            said = rows.rows_are_independent(self.root(), call.args, call.kwargs, call.size, call.ids(whole), answer.learn)
            call.said = call.said or said
            if said.word == "yes" and not answer.why and not why:
                return answer
            why = why or answer.why
            if why:
                break
        raise Unfit(why or call.said.reason)


def unfit(root, module):
    """Return why a model cannot run in parts, whatever it is called with; "" if it may."""
    wrapper = type(root).__name__
    why = exclusions.reason(root)
    if why or wrapper == "DeepSpeedEngine":
        return why or "%s makes the calls of the model" % wrapper
    if exclusions.is_sharded(root) or any("DTensor" in type(p).__name__ for p in module.parameters()):
        return "the ranks share the model's parameters"
    for m in module.modules():
        if modulestate.is_norm(m) and m.training or isinstance(m, torch.nn.SyncBatchNorm):
            return "%s takes statistics over the batch" % type(m).__name__
        if foreign(m._backward_hooks) or foreign(getattr(m, "_backward_pre_hooks", {})):
            return "%s has a hook on its backward" % type(m).__name__
    if any(p._backward_hooks for p in module.parameters()):
        return "a parameter has a hook on its gradient"
    return ""


def foreign(hooks):
    return any(not getattr(hook, "__globals__", {}).get("__name__", "").startswith(("gpurun", "inside")) for hook in hooks.values())


class Call:
    """One call of the model: which of its inputs have the rows of the batch."""

    def __init__(self, module, args, kwargs, grad):
        self.module, self.args, self.kwargs, self.grad = module, args, kwargs, grad
        self.given = dict(values.named((args, kwargs), most=None))
        self.size = (loaders.hook.get("root", {}).get("loader") or {}).get("batch_size") or 0
        self.batch, self.said = rows.Batch(args, kwargs, self.size), None

    def signature(self):
        """Return what calls of one kind have in common."""
        trained = tuple(p.requires_grad for p in self.module.parameters())
        inputs = tuple((path, t.dim(), self.batch.dim_of(t), t.dtype, t.requires_grad) for path, t in self.given.items())
        return self.module.training, self.grad, self.batch.dim, trained, inputs

    def ids(self, paths):
        return {id(self.given[path]) for path in paths}

    def readings(self):
        """Return the sets of inputs that may be no rows although their first dimension is the
        batch: none, each one, and all but the largest."""
        own = [path for path, t in self.given.items() if self.batch.counts(t)]
        found = [()]
        if 1 < len(own) <= CANDIDATES:
            largest = max(own, key=lambda path: self.given[path].numel())
            found += [(path,) for path in own] + ([tuple(path for path in own if path is not largest)] if len(own) > 2 else [])
        return found


class Answer:
    """What a kind of call computes."""

    def __init__(self, call, whole):
        self.paths, self.grad, self.why = whole, call.grad, ""
        self.module = weakref.ref(call.module)
        self.kinds = self.dims = self.graded = None
        self.draws = False  # random numbers
        self.reached, self.ignored = set(), {IGNORED}

    def batch(self, call):
        """Return the batch of a call of this kind."""
        return rows.Batch(call.args, call.kwargs, call.size, call.ids(self.paths))

    def learn(self, forward, found, dims, draws):
        """Comes after a few rows were found to depend on themselves alone."""
        try:
            self.learned(forward, found, dims, draws)
        except rows.Unknown as e:
            self.why = str(e)
        except Exception as e:
            if ranout.is_one(e):
                raise  # fewer rows may do
            self.why = "the model could not be run with a few rows: %s: %s" % (type(e).__name__, str(e)[:150])

    def learned(self, forward, found, dims, draws):
        few, half = max(found), min(found)
        kept, fewer = Output(found[few], self.grad), Output(found[half], self.grad)
        if len(kept.tensors) != len(dims) or kept.others != fewer.others:
            raise rows.Unknown("an output of the model follows from the whole batch")
        self.dims, self.draws = dims, draws
        if None not in dims:
            found.clear()
            del kept, fewer  # only what has no rows is compared
        module, changes = self.module(), Changes(self.module())
        try:
            with torch.set_grad_enabled(self.grad):
                made = Output(forward(list(range(half))), self.grad)
        finally:
            changes.log.close()
        changes.check()
        self.graded = [t.requires_grad for t in made.tensors]
        graph = Graph(made.tensors)
        if graph.hidden:
            raise rows.Unknown("%s computes gradients that do not come out of the graph" % graph.hidden)
        parameters = list(module.parameters())
        if graph.own and draws_in_backward(made.tensors, parameters):
            raise rows.Unknown("%s draws random numbers in the backward pass" % graph.own)
        self.reached = {i for i, p in enumerate(parameters) if id(p) in graph.leaves}
        self.ignored |= graph.ignored
        self.kinds = ["rows"] * len(dims)
        if None in dims:
            other = Output(forward(list(range(half, few))), self.grad)
            for i, d in enumerate(dims):
                if d is None:
                    self.kinds[i] = kind_of(kept.tensors[i], fewer.tensors[i], other.tensors[i], made.tensors[i])


def draws_in_backward(outputs, parameters):
    """Return whether a backward pass draws random numbers: parts would draw others."""
    outputs = [t for t in outputs if t.requires_grad]
    inputs = [p for p in parameters if p.requires_grad and not p._backward_hooks]
    if not outputs or not inputs:
        return False
    devices = sorted({p.device for p in parameters if p.device.type == "cuda"}, key=str)
    before = numbers(devices)
    torch.autograd.grad(outputs, inputs, [torch.zeros_like(t) for t in outputs], retain_graph=True, allow_unused=True)
    drawn = not places.alike(numbers(devices), before)
    set_numbers(devices, before)
    return drawn


def kind_of(whole, one, other, made):
    """Return how an output that has no rows follows from those of the parts."""
    if torch.equal(whole, one) and torch.equal(whole, other):
        leaves = Graph([made]).parameters
        if not made.requires_grad or all(p.numel() == 1 for p in leaves):
            return "constant"
    if not whole.is_floating_point():
        raise rows.Unknown("an output of the model has no row for each sample")
    whole, one, other = whole.double(), one.double(), other.double()
    near = 2e-2 if made.dtype in (torch.float16, torch.bfloat16) else 1e-3
    for name, value in (("sum", one + other), ("mean", (one + other) / 2)):
        if bool((whole.abs() > 0).all()) and bool(((value - whole).abs() <= near * whole.abs()).all()):
            return name
    raise rows.Unknown("an output of the model is neither a sum nor a mean over the rows")


def equally_many(call, batch, ignored):
    """Return whether each row of a call counts as many items in a mean: labels that are not
    ignored, and places that are not masked."""
    for path, t in call.given.items():
        if not batch.counts(t) or t.is_complex():
            continue
        each = t.movedim(batch.dim_of(t), 0).reshape(batch.rows, -1)
        name = str(path[-1])
        if t.is_floating_point() or t.dtype.is_floating_point:
            if "mask" not in name and "weight" not in name:
                continue
            counts = [each.sum(1)]
        elif "mask" in name or t.dtype == torch.bool:
            counts = [(each != 0).sum(1)]
        else:
            counts = [(each == value).sum(1) for value in ignored]
        if any(bool((n != n[0]).any()) for n in counts):
            return False
    return True


class Changes:
    """Finds what a run of the model changes beside its outputs: parts would change it several
    times."""

    def __init__(self, module):
        state = modulestate.State(module)
        if state.unreadable:
            raise rows.Unknown("the model holds %s" % state.unreadable)
        self.name, self.before, self.log = type(module).__name__, state.read(), places.Log()

    def check(self):
        self.log.close()
        changed = ["the attribute %s" % name for _, _, space, name, old in self.log.spaces() if not places.same(old, space.get(name, places.MISSING))]
        changed += [p.words() for p, value in self.before if p.kind != "random" and p.changed(value)]
        if changed:
            raise rows.Unknown("the forward of %s changes %s" % (self.name, changed[0]))


class Graph:
    """What the graph of some outputs ends in."""

    def __init__(self, outputs):
        self.leaves, self.parameters, self.ignored, self.hidden = set(), [], set(), ""
        self.own = ""  # the name of a function of the job's own, which may do anything in the backward pass
        for t in outputs:
            if t.grad_fn is None and t.requires_grad:
                self.leaf(t)
        for node in oldgraph.nodes_from(t.grad_fn for t in outputs):
            if hasattr(node, "variable"):
                self.leaf(node.variable)
            if oldgraph.is_reentrant(node):
                self.hidden = "torch.utils.checkpoint with use_reentrant=True"
            function = getattr(node, "_forward_cls", None)
            if function is not None and not kinds.is_library(function.__module__):
                self.own = function.__name__
            if hasattr(node, "_saved_ignore_index"):
                value = node._saved_ignore_index
                self.ignored.add(value - (1 << 64) if value >= 1 << 63 else value)

    def leaf(self, tensor):
        if id(tensor) not in self.leaves:
            self.leaves.add(id(tensor))
            self.parameters.append(tensor)


class Output:
    """What the model returns: its tensors, the other values, and how to make such a value."""

    def __init__(self, value, grad):
        self.tensors, self.others, self.grad = [], [], grad
        self.build = self.apart(value, 0)

    def apart(self, value, depth):
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return lambda tensors, i=len(self.tensors) - 1: tensors[i]
        if callstate.is_cache(value):
            if not self.grad:
                raise rows.Unknown("the model returns a cache of keys and values")
            return lambda tensors: None
        if depth > 4 or not rows.tensors(value):
            self.others.append(value if isinstance(value, (bool, int, float, str, type(None))) else type(value))
            return lambda tensors: value
        if type(value) in (list, tuple) or isinstance(value, tuple) and hasattr(value, "_fields"):
            inner = [self.apart(each, depth + 1) for each in value]
            make = type(value)._make if hasattr(value, "_fields") else type(value)
            return lambda tensors: make([build(tensors) for build in inner])
        if isinstance(value, dict):
            named = [(key, (lambda tensors: None) if key == callstate.CACHE and self.grad else self.apart(each, depth + 1)) for key, each in value.items()]
            kind = type(value)
            if hasattr(value, "to_tuple"):  # transformers and diffusers
                return lambda tensors: kind(**{key: build(tensors) for key, build in named})
            return lambda tensors: kind((key, build(tensors)) for key, build in named)
        raise rows.Unknown("the model returns %s, of which no rows can be joined" % type(value).__name__)


class Parts:
    """One call of the model in parts."""

    def __init__(self, split, plain, call, answer):
        self.split, self.plain, self.call, self.answer, self.batch = split, functools.partial(wall.part, plain), call, answer, answer.batch(call)
        self.module = call.module
        if "mean" in answer.kinds and not equally_many(call, self.batch, answer.ignored):
            raise Unfit("the model's loss is a mean over unequally many items")
        self.given = list(call.given.values())
        # DistributedDataParallel looks which parameters the outputs follow from.
        trained = [(i, p) for i, p in enumerate(self.module.parameters()) if p.requires_grad]
        looks = "DistributedDataParallel" in type(split.root()).__name__
        self.parameters = [p for i, p in trained if i in answer.reached or not looks]
        self.others = [p for i, p in trained if i not in answer.reached and looks]
        self.devices = sorted({t.device for t in self.given + self.parameters if t.device.type == "cuda"}, key=str)
        self.cast = rootstate.autocast(torch)
        self.done = []  # (first row, row after the last, random numbers before, whether some were drawn)
        self.build = None  # gives the output from its tensors

    def run(self):
        grad = self.call.grad
        self.split.busy = True
        try:
            if grad and any(self.answer.graded):
                joined = Whole.apply(self, *self.given, *self.parameters)
            else:
                joined = self.forward()
        finally:
            self.split.busy = False
        return self.build(list(joined))

    def bounds(self):
        n = self.batch.rows
        k = min(self.split.parts[self.call.grad], n)
        return [(n * i // k, n * (i + 1) // k) for i in range(k)]

    def part(self, low, high, leaves=None):
        """Call the model with some rows, and return (its output, its tensors by kind)."""
        rows_of = slice(low, high)
        args, kwargs = self.batch.take(list(self.call.args), rows_of), self.batch.take(dict(self.call.kwargs), rows_of)
        if leaves:
            args, kwargs = replaced((args, kwargs), (list(self.call.args), dict(self.call.kwargs)), leaves)
        before = rows.versions((args, kwargs))
        try:
            output = Output(self.plain(self.module, *args, **kwargs), self.call.grad)
        finally:
            torch.clear_autocast_cache()  # what was cast without gradients, or belongs to a graph that is gone
        if rows.versions((args, kwargs)) != before:
            raise Unfit("the forward writes to its inputs")
        if len(output.tensors) != len(self.answer.dims):
            raise Unfit("a part of the batch has other outputs")
        return output

    # The forward pass: nothing is kept for the backward pass.

    def forward(self):
        """Return the outputs of the whole batch."""
        start = self.numbers()
        while True:
            joined = self.joined()
            if self.goes_through(joined):
                return joined
            joined, self.done = None, []
            self.set_numbers(start)

    def goes_through(self, joined):
        """Return whether the largest part fits forward and backward: one that draws random
        numbers cannot be halved once the job has the output. It is tried once; where it does
        not fit, there are twice as many parts."""
        split, grad = self.split, self.call.grad
        low, high = max(((low, high) for low, high, _, _ in self.done), key=lambda each: each[1] - each[0])
        if not split.halves or not self.answer.draws or not grad or high - low <= split.fitted or high - low < 2:
            return True
        began = time.monotonic()
        try:
            self.again(low, high, [torch.zeros_like(t) if graded else None for t, graded in zip(joined, self.answer.graded)], Sums(self))
        except BaseException as e:
            failed = self.judge(e, low, high)
        else:
            split.fitted = high - low
            return True
        self.release(failed)
        self.halve(low, high, failed, "forward", began)
        return False

    def joined(self):
        joined, others, todo = None, None, self.bounds()
        with torch.no_grad():
            while todo:
                low, high = todo.pop(0)
                began, before = time.monotonic(), self.numbers()
                try:
                    output = self.part(low, high)
                    if joined is None:
                        joined, others, self.build = [self.empty(t, i, high - low) for i, t in enumerate(output.tensors)], output.others, output.build
                    if output.others != others:
                        raise Unfit("a part of the batch has other outputs")
                    for i, t in enumerate(output.tensors):
                        self.join(joined[i], t, i, low, high)
                    failed = None
                except BaseException as e:
                    failed = self.judge(e, low, high)
                output = None
                if failed is None:
                    self.done.append((low, high, before, not places.alike(self.numbers(), before)))
                    continue
                self.release(failed)
                self.set_numbers(before)
                todo[:0] = self.halve(low, high, failed, "forward", began)
        return joined

    def empty(self, t, i, n):
        """Return a tensor for one output of the whole batch."""
        d = self.answer.dims[i]
        if d is None:
            return t.new_zeros(t.shape) if self.answer.kinds[i] != "constant" else t.detach().clone()
        if t.shape[d] % n:
            raise Unfit("a part of the batch has other outputs")
        return t.new_empty(t.shape[:d] + (t.shape[d] // n * self.batch.rows,) + t.shape[d + 1:])

    def join(self, whole, t, i, low, high):
        d, kind = self.answer.dims[i], self.answer.kinds[i]
        if kind == "rows":
            self.of(whole, d, low, high).copy_(t)
        elif kind != "constant":
            whole.add_(t, alpha=self.weight(kind, low, high))

    def of(self, whole, d, low, high):
        """Return some rows of an output or its gradient, which may have several entries for each."""
        each = whole.shape[d] // self.batch.rows
        return whole.narrow(d, low * each, (high - low) * each)

    def weight(self, kind, low, high):
        return 1 if kind == "sum" else (high - low) / self.batch.rows

    # The backward pass: each part again, with gradients.

    def backward(self, gradients):
        """Return the gradients of what the call was given, and of the parameters."""
        after = self.numbers()
        if torch.is_grad_enabled():
            self.split.fail("the job computes gradients of gradients")
        total = Sums(self)
        todo = [(low, high, numbers, drawn, total.wanted()) for low, high, numbers, drawn in self.done]
        self.split.busy = True
        try:
            while todo:
                low, high, numbers, drawn, wanted = todo.pop(0)
                self.set_numbers(numbers)
                began, left = time.monotonic(), set(wanted)
                try:
                    self.again(low, high, gradients, total, left)
                    continue
                except BaseException as e:
                    failed = self.judge(e, low, high, drawn)
                self.release(failed)
                # What was added to a sum already is not computed again.
                todo[:0] = [(a, b, numbers, drawn, left) for a, b in self.halve(low, high, failed, "backward", began)]
        finally:
            self.split.busy = False
            self.set_numbers(after)
        return total.found()

    def again(self, low, high, gradients, total, left=None):
        left = set(total.wanted()) if left is None else left
        leaves = total.leaves(low, high)
        with torch.enable_grad(), rootstate.cast_as(self.cast):
            made = self.part(low, high, leaves).tensors
        outputs, theirs = [], []
        for i, (t, gradient) in enumerate(zip(made, gradients)):
            if gradient is None or not t.requires_grad:
                continue
            d, kind = self.answer.dims[i], self.answer.kinds[i]
            outputs.append(t)
            theirs.append(gradient * self.weight(kind, low, high) if d is None else self.of(gradient, d, low, high))
        made = t = gradient = None
        if outputs:
            total.add(outputs, theirs, leaves, left, low, high)

    # Memory, and random numbers.

    def judge(self, e, low, high, drawn=False):
        """Return an error that memory ran out, if the part can be halved; raises it if not. The
        halves of a part would draw other random numbers than the output that it gave."""
        if isinstance(e, Unfit):
            self.split.fail(str(e))
        if not self.split.halves or high - low < 2 or drawn or not ranout.is_one(e):
            raise e
        return e

    def halve(self, low, high, failed, phase, began):
        """Return the halves of a part that did not fit: so small are the parts from then on."""
        middle, grad = (low + high) // 2, self.call.grad
        self.split.parts[grad] = max(self.split.parts[grad], -(-self.batch.rows // (high - middle)))
        if self.split.halved:
            self.split.halved(self.call, phase, failed, time.monotonic() - began)
        return [(low, middle), (middle, high)]

    def release(self, failure):
        traceback.clear_frames(failure.__traceback__)
        failure.__traceback__ = None
        garbage.collect()

    def numbers(self):
        return numbers(self.devices)

    def set_numbers(self, then):
        set_numbers(self.devices, then)


def numbers(devices):
    """Return the state of all random numbers."""
    numpy = sys.modules.get("numpy.random")
    return [draw() for draw in rootstate.generators(devices)], random.getstate(), numpy and numpy.get_state()


def set_numbers(devices, then):
    states, python, numpy = then
    rootstate.set_random(devices, states)
    random.setstate(python)
    if numpy is not None:
        sys.modules["numpy.random"].set_state(numpy)


def elements(args, kwargs):
    """Return how many elements the inputs of a call have."""
    return sum(t.numel() for t in values.tensors((args, kwargs)))


def replaced(value, original, leaves):
    """Return arguments with leaves in place of the tensors that they are rows of."""
    if isinstance(original, torch.Tensor):
        return leaves.get(id(original), value)
    if isinstance(value, dict):
        return {key: replaced(each, original[key], leaves) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replaced(each, other, leaves) for each, other in zip(value, original))
    return value


class Sums:
    """The gradients of a call, summed over its parts."""

    def __init__(self, parts):
        self.parts = parts
        self.tensors = parts.given + parts.parameters + parts.others
        self.sums = [None] * len(self.tensors)

    def wanted(self):
        return [j for j, t in enumerate(self.tensors) if t.requires_grad]

    def leaves(self, low, high):
        """Return by id new leaves for the inputs whose gradients are wanted."""
        found = {}
        for t in self.parts.given:
            if t.requires_grad:
                d = self.parts.batch.dim_of(t)
                found[id(t)] = (t if d is None else t.narrow(d, low, high - low)).detach().requires_grad_()
        return found

    def add(self, outputs, theirs, leaves, left, low, high):
        """Adds the gradients of one part, and takes out of left what was added to."""
        n = len(self.parts.given)
        wanted = sorted(left)
        inner = [leaves[id(self.tensors[j])] if j < n else self.tensors[j] for j in wanted]
        # A parameter's gradient is added as soon as it is there, so that not all exist twice.
        # PyTorch before 2.0 runs no hook there.
        handles = [t.register_hook(self.adding(j, left)) for j, t in zip(wanted, inner) if j >= n]
        try:
            found = torch.autograd.grad(outputs, inner, theirs, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        for j, gradient in zip(wanted, found):
            if gradient is None or j not in left:
                continue
            if j < n and self.parts.batch.counts(self.tensors[j]):
                if self.sums[j] is None:
                    self.sums[j] = torch.zeros_like(self.tensors[j])
                self.sums[j].narrow(self.parts.batch.dim_of(self.tensors[j]), low, high - low).copy_(gradient)
            else:
                self.sum(j, gradient)
            left.discard(j)

    def adding(self, j, left):
        def add(gradient):
            self.sum(j, gradient)
            left.discard(j)
            return gradient.new_zeros(()).expand_as(gradient) if gradient.layout is torch.strided else None

        return add

    def sum(self, j, gradient):
        strided = gradient.layout is torch.strided
        with torch.no_grad():
            if self.sums[j] is None:
                self.sums[j] = gradient.clone() if strided else gradient
            elif strided and self.sums[j].layout is gradient.layout:
                self.sums[j].add_(gradient)
            else:
                self.sums[j] = self.sums[j] + gradient

    def found(self):
        n, sums, self.sums = len(self.parts.given + self.parts.parameters), self.sums, None
        if any(s is not None for s in sums[n:]):
            self.parts.split.fail("a part of the batch uses parameters that the first rows did not")
        return tuple(sums[:n])


class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parts, *tensors):
        ctx.parts = parts
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)  # so that PyTorch sees where one of them is written to
        outputs = tuple(parts.forward())
        ctx.mark_non_differentiable(*[t for t, graded in zip(outputs, parts.answer.graded) if not graded])
        return outputs

    @staticmethod
    @wall.remedy
    def backward(ctx, *gradients):
        try:
            ctx.saved_tensors
        except RuntimeError as e:  # the job has written to them since
            raise wall.raising(e)
        return (None,) + ctx.parts.backward(gradients)


class InParts(remedy.Remedy):
    """The root runs in parts of the batch, which are halved until they fit."""

    name = "split"

    def __init__(self, guard):
        super().__init__(guard)
        self.split = Split(session.current.root() or guard.root(), guard.root())
        self.split.halves, self.split.halved = True, self.halved

    @property
    def parts(self):
        return self.split.parts[True]

    def refusal(self, calls):
        if "turned" in state:
            return "it is on already"
        return super().refusal(calls) or next((why for why in map(self.unfit, calls) if why), "")

    def unfit(self, call, known=True):
        """Return why a call cannot run in parts. Known: as far as that is known without running the model."""
        try:
            answer = self.split.answer(Call(self.guard.root(), call.args, call.kwargs, True), known)
        except (Unfit, rows.Unknown) as e:
            return str(e)
        # Its outputs are part of the loss that is backpropagated.
        drawn = answer is not None and answer.draws and call.outputs
        return "the model draws other random numbers in parts" if drawn else ""

    def levels(self, calls):
        # To see whether rows depend on each other some are run, with random numbers of its own.
        with self.guard.unchanged(calls):
            unfit = next((why for why in (self.unfit(call, False) for call in calls) if why), "")
        if unfit:
            self.guard.say_unfit("split: " + unfit)
            return
        self.turn()
        yield

    def turn(self):
        self.split.parts[True] = max(self.split.parts[True], 2)

    def keep(self, calls):
        super().keep(calls)
        state["refusal"] = ""  # a later attempt may be planned in parts, if this process ends before it can be asked
        answered(self.guard.root(), rows.Answer("yes"))

    def arm(self, size, longest, parts=0):
        super().arm(size, longest)
        self.split.parts[True] = max(self.split.parts[True], parts, 2)

    fits = False  # fewer parts may be as slow, where the device is not busy

    def degree(self):
        return max(self.parts, 2).bit_length() - 2

    def degrees(self, above):
        if not self.is_used() or self.parts & (self.parts - 1):
            return []
        numbers = [n for n in VALUES if n <= max(self.parts, MOST_TRIED)]
        return [(above * self.parts // n, AGAIN + EACH * i) for i, n in enumerate(numbers)] if self.parts in numbers else []

    def use(self, degree):
        self.split.parts[True] = VALUES[degree]

    def describe(self, degree):
        return {"parts": VALUES[degree]}

    def run(self, plain, root, args, kwargs):
        return self.split.run(plain, args, kwargs)

    def halved(self, call, phase, failure, seconds):
        """Comes after a part did not fit in a call that already ran in parts."""
        if not session.current.repeating:
            repeats.done(phase, self.name, seconds, failure, self.size if call.grad else 0, self.longest if call.grad else 0, self.split.parts[call.grad])

    # Calls without gradients, as in an evaluation.

    evaluated = float("inf")  # elements of the smallest that ran out of memory

    def evaluate(self, plain, root, args, kwargs):
        """Call the root without gradients, in parts where memory runs out."""
        if self.split.parts[False] > 1 and elements(args, kwargs) >= self.evaluated:
            return self.split.run(plain, args, kwargs)
        before = numbers(self.guard.known.devices)
        try:
            return plain(root, *args, **kwargs)
        except BaseException as e:
            failure, trace = e, e.__traceback__
        if not ranout.is_one(failure) or "turned" in state:
            raise failure
        return self.evaluate_again(plain, args, kwargs, before, failure, trace)

    def evaluate_again(self, plain, args, kwargs, before, failure, trace):
        guard, began = self.guard, time.monotonic()
        why: typing.Any = None
        try:
            guard.check(failure, [])
        except Exception as e:
            why = e
        if why is None:
            with guard.repeating("evaluation", failure):
                set_numbers(guard.known.devices, before)
                self.split.parts[False] = max(self.split.parts[False], 2)
                try:
                    output = self.split.parted(plain, args, kwargs)
                except BaseException as e:
                    why = e
        if why is not None:
            guard.give_up("forward", failure, why, trace)
        self.evaluated = min(self.evaluated, elements(args, kwargs))
        repeats.done("forward", self.name, time.monotonic() - began, failure, parts=self.split.parts[False])
        return output
