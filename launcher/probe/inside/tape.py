# What a job computes in one micro batch outside of the root's forward: each operation of
# PyTorch with its arguments, tensors by number, in the order in which they came. Tensors that
# were there before are kept until the backward pass, results are not.
import os
import sys
import threading
import time
import weakref

MOST_OPS = 4000  # in a micro batch
MOST_TIME = 20.0  # seconds that a micro batch may take
MOST_DRAWN = 1 << 24  # random numbers of one operation
MOST_CALLS = 16  # of the root without a backward pass
SMALL = 1 << 20  # elements of a tensor that is compared with that of the next micro batch

DRAWN = {  # operations whose result is random, whatever they are given
    "uniform_", "normal_", "exponential_", "random_", "log_normal_", "geometric_", "cauchy_", "bernoulli_",
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "normal", "randperm", "bernoulli", "multinomial", "poisson",
}
ARITHMETIC = ("mul", "div", "add", "sub", "rsub", "pow", "clamp", "clamp_min", "clamp_max", "mul_", "div_", "add_", "sub_", "fill_", "full", "full_like")


class Unproven(Exception):
    """Raised with the reason why the loss cannot be computed again."""


class Ref:
    """A tensor in the arguments of an operation, by its number."""

    def __init__(self, n):
        self.n = n


class Op:
    """One operation of PyTorch; kept has its result where that is random."""

    def __init__(self, func, args, kwargs, grad, line, kept):
        self.func, self.args, self.kwargs, self.grad, self.line, self.kept = func, args, kwargs, grad, line, kept
        self.name = str(func).partition(".")[2].partition(".")[0]
        self.outs, self.writes = [], []  # numbers of its results; the memory that it writes to


class Call:
    """A call of the root: the numbers of the tensors that it is given and gives."""

    name, grad, line, writes = "forward", True, "", ()

    def __init__(self, given, trains):
        self.given, self.trains, self.outs = given, trains, []


class Tape:
    """What is computed in one micro batch."""

    def __init__(self, leaves, rows=0, loader=True):
        self.rows, self.loader = rows, loader
        self.ops, self.known, self.tensors, self.store, self.n = [], {}, {}, {}, 0
        self.versions, self.bytes, self.began, self.thread, self.why = {}, 0, time.monotonic(), threading.get_ident(), ""
        self.leaves = leaves  # by id: a weak reference; shared by all tapes

    def fail(self, why):
        """Notes nothing more, and keeps no tensor."""
        self.why = self.why or why
        self.ops, self.tensors = [], {}

    def is_row(self, tensor):
        """Return whether a tensor that was there before has a row for each sample: it came from
        the DataLoader, or where there is none, it is as long as the batch."""
        found = self.leaves.get(id(tensor))
        if found is not None and found() is tensor:
            return True
        return not self.loader and not tensor.requires_grad and tensor.dim() > 0 and tensor.shape[0] == self.rows

    def number(self, tensor):
        """Return the number of a tensor; one that was there before is kept."""
        found = self.known.get(id(tensor))
        if found is not None and found[0]() is tensor:
            return found[1]
        n = self.give(tensor)
        self.tensors[n], self.versions[n] = tensor, version(tensor)
        return n

    def give(self, tensor):
        if type(tensor) not in (sys.modules["torch"].Tensor, sys.modules["torch"].nn.Parameter):
            raise Unproven("a %s is among what computes the loss" % type(tensor).__name__)
        n = self.n = self.n + 1
        self.known[id(tensor)] = weakref.ref(tensor), n
        self.store[n] = storage(tensor)
        return n

    def refs(self, value):
        """Return arguments with the numbers of tensors in their place."""
        if hasattr(value, "element_size"):
            return Ref(self.number(value))
        if isinstance(value, (list, tuple)):
            return [self.refs(v) for v in value]
        return value

    def add(self, func, args, kwargs, given, out, grad, line):
        torch = sys.modules["torch"]
        if len(self.ops) == MOST_OPS or time.monotonic() - self.began > MOST_TIME:
            raise Unproven("too much is computed before the backward pass")
        if "c10d" in str(func):
            raise Unproven("the ranks exchange tensors before the backward pass")
        name, kept = str(func).partition(".")[2].partition(".")[0], None
        tensors = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, torch.Tensor)]
        self.bytes += sum(t.numel() * t.element_size() for t in tensors)
        if name in DRAWN:
            kept = [t.detach().clone() for t in tensors if t.numel() <= MOST_DRAWN]
            if len(kept) < len(tensors):
                raise Unproven("too many random numbers are drawn for the loss")
        op = Op(func, given[0], given[1], grad, line, kept)
        for t in out if isinstance(out, (tuple, list)) else [out]:
            known = self.known.get(id(t))
            if known is not None and known[0]() is t:  # it was written to
                op.outs.append(known[1])
                op.writes.append(self.store[known[1]])
            else:
                op.outs.append(self.give(t) if isinstance(t, torch.Tensor) else None)
        self.ops.append(op)
        if len(tensors) == 1 and name in ("_to_copy", "clone", "_pin_memory", "detach", "alias", "lift_fresh") and len(args) and self.loader and self.is_row(args[0]):
            self.leaves[id(tensors[0])] = weakref.ref(tensors[0])

    def cone(self, loss):
        """Return the operations that the loss follows from."""
        if self.why:
            raise Unproven(self.why)
        last = self.find(loss)
        needed, stores, chosen = {last}, {self.store[last]}, []
        for op in reversed(self.ops):
            if any(n in needed for n in op.outs if n) or any(s in stores for s in op.writes):
                chosen.append(op)
                for n in numbers((op.given,) if isinstance(op, Call) else (op.args, op.kwargs)):
                    needed.add(n)
                    stores.add(self.store[n])
        return chosen[::-1]

    def find(self, loss):
        """Return the number of the loss."""
        found = self.known.get(id(loss))
        if found is None or found[0]() is not loss:
            raise Unproven("what computes the loss was not seen")
        return found[1]


def version(tensor):
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode
        return 0


def storage(tensor):
    try:
        return tensor.untyped_storage().data_ptr()
    except AttributeError:  # before PyTorch 2.0
        return tensor.storage().data_ptr()


def numbers(value):
    """Return the numbers of the tensors among arguments."""
    if isinstance(value, Ref):
        return [value.n]
    if isinstance(value, dict):
        value = list(value.values())
    return [n for v in value for n in numbers(v)] if isinstance(value, (list, tuple)) else []


def filled(value, values):
    """Return arguments with tensors in place of their numbers."""
    if isinstance(value, Ref):
        return values[value.n]
    return [filled(v, values) for v in value] if isinstance(value, list) else value


def place():
    """Return file and line of the job's own code that runs now."""
    skipped = os.path.dirname(sys.modules["torch"].__file__) + os.sep, os.path.dirname(place.__code__.co_filename) + os.sep, "<"
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(skipped):
            return "%s:%d" % (os.path.basename(name), frame.f_lineno)
        frame = frame.f_back
    return ""


def signature(tape, ops):
    """Return what the loss is computed of beside the samples, one item an operation: its place,
    its name, its numbers, and what tensors that were there before hold."""
    torch, found, seen = sys.modules["torch"], [], set()
    for op in ops:
        before = []
        for n in [] if isinstance(op, Call) else numbers((op.args, op.kwargs)):
            tensor = tape.tensors.get(n)
            if tensor is None or n in seen or tape.is_row(tensor) or tensor.requires_grad:
                continue
            seen.add(n)
            before.append(print_of(tensor, torch))
        if isinstance(op, Call):
            seen.update(op.outs)
            found.append(("", op.name, [len(op.given)], before))
        else:
            found.append((op.line, str(op.func), plain((op.args, op.kwargs)), before))
    return found


def plain(value):
    """Return the arguments of an operation without its tensors."""
    if isinstance(value, dict):
        return [(k, plain(v)) for k, v in sorted(value.items())]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return "" if isinstance(value, Ref) else value if isinstance(value, (int, float, bool)) else str(value)


def print_of(tensor, torch):
    if tensor.numel() > SMALL:
        return id(tensor), version(tensor)
    flat = tensor.detach().reshape(-1).double() if not tensor.is_complex() else torch.view_as_real(tensor.detach()).reshape(-1).double()
    return tuple(tensor.shape), float(flat.sum()), float((flat * flat).sum())


def differs(first, now):
    """Return how a micro batch computes its loss in another way than the first; "" where it does not."""
    for one, other in zip(first, now):
        if one[:2] != other[:2]:
            return "the micro batches of a step compute their losses in several ways (%s)" % (other[0] or one[0])
        if one[2] != other[2]:
            return "a number in the loss is another in each micro batch (%s)" % other[0]
        if one[3] != other[3]:
            return "a tensor in the loss changes from one micro batch to the next (%s)" % other[0]
    return "" if len(first) == len(now) else "the micro batches of a step compute their losses in several ways"


def constants(tape, ops, loss, rows):
    """Return the numbers that the job's own code computes the loss with, by their place, but
    for those by which the whole is multiplied or divided, and the number of samples by which
    a sum is: backward.py looks at these."""
    last, outer, found = tape.find(loss), set(), {}
    sums = {n for op in ops if op.name == "sum" and len(op.args) == 1 for n in op.outs}
    for op in reversed(ops):
        given = numbers(op.args) if isinstance(op, Op) else []
        if op.outs != [last] or op.name not in ("mul", "div", "mul_", "div_", "neg", "_to_copy", "alias", "clone", "detach") or not given:
            break
        outer.add(op)
        last = given[0]
    for op in ops:
        if isinstance(op, Op) and op not in outer and op.line:
            for i, value in enumerate(op.args):
                if op.name == "div" and value == rows and sums.intersection(numbers(op.args)):
                    continue
                if isinstance(value, float) or type(value) is int and op.name in ARITHMETIC:
                    name = "a number in %s" % op.line
                    while name in found:
                        name += "'"
                    found[name] = float(value)
    return {k: v for k, v in found.items() if abs(v) < float("inf")}
