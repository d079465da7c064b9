# Whether the forward of a module computes each row of a batch by itself: a few rows are run
# in several arrangements, without gradients, and the output of each row must stay the same.
# Random operations are made deterministic for that: dropout keeps all, noise is one number,
# a random order is the reverse one. The module is restored afterwards: buffers, attributes, modes,
# random numbers, the cache of autocast. Hooks on the module itself are not run; where a
# module in it has a forward hook, or ranks would wait for each other, nothing is run.
import math
import operator
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..base import ranout
from . import blocks, callstate, exclusions, modulestate, places

ROWS = 4, 2  # that are run; fewer where memory runs out with more: it has run out before
# How far the same row may be apart, by the bits of a number: with batches of one size, where
# the kernels are the same, and of several.
ALIKE = {16: 2e-3, 32: 1e-5, 64: 1e-10}
NEARLY = {16: 5e-2, 32: 2e-3, 64: 1e-6}
# Large outputs are compared in pieces of so many numbers: memory may be short.
AT_ONCE = 1 << 20
OTHERS = "computes a row from others"


class Answer:
    """The word is "yes", "no" or "unknown"; dims has, for each tensor of the output, the
    dimension that counts the rows, None for none. dims is None where it is not known."""

    def __init__(self, word, reason="", dims=None):
        self.word, self.reason, self.dims = word, reason, dims


class Unknown(Exception):
    """Raised with the reason why the rows cannot be compared."""


def rows_are_independent(root, args, kwargs, size=0, whole=(), more=None):
    """Return whether each row of the output depends on the same row of the input alone, and a
    loss among the output is a mean or a sum over the rows. It never raises, and leaves no
    trace. Size is the number of rows, where that is known; whole has the ids of inputs that
    are no rows. more(forward, found, dims, draws) is called before a "yes", and may raise Unknown:
    forward(rows) runs the module, found has what it returned by the number of rows, and draws says whether it draws
    random numbers."""
    for most in ROWS:
        short, why = False, ""
        try:
            return answer(root, args, kwargs, Batch(args, kwargs, size, whole), more, most)
        except Unknown as e:
            why = str(e)
        except Exception as e:
            short, why = ranout.is_one(e), "the model could not be run with a few rows: %s: %s" % (type(e).__name__, str(e)[:150])
        if not short:
            break
    return Answer("unknown", why)


def answer(root, args, kwargs, batch, more, most):
    module = blocks.unwrap(root)
    check(root, module)
    if batch.rows < 2:
        raise Unknown("a batch of one row cannot be divided")
    why, dims = "", None
    with modulestate.untouched(module), Plain() as noise, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = min(most, batch.rows // 2 * 2)
        names = list(range(few))

        def forward(rows):
            given = batch.take(args, rows), batch.take(kwargs, rows)
            before = versions(given)
            output = module.forward(*given[0], **given[1])
            if versions(given) != before:
                raise Unknown("%s writes to its inputs" % type(module).__name__)
            return output

        found = {few: forward(names)}
        drawn, noise.sizes = noise.sizes, []
        found[few // 2] = forward(names[:few // 2])
        shared = any(map(operator.eq, drawn, noise.sizes))
        whole, half = tensors(found[few]), tensors(found[few // 2])
        dims = [dimension(w, h, few) for w, h in zip(whole, half)]
        if len(whole) != len(half) or "unlike" in dims:
            raise Unknown("the shapes of the model's output do not follow from the rows")
        # Of the other outputs one is held at a time.
        orders = [names[0::2] * 2, (names[1::2] * 2)[::-1]]
        unlike, single = [], []
        for order in orders:
            output = tensors(forward(order))
            unlike.append([d is not None and far(output[i], value, ALIKE, d, order) for i, (value, d) in enumerate(zip(whole, dims))])
            single.append([None if d is not None else value for value, d in zip(output, dims)])
            del output
        again = [far(output, value, ALIKE) for output, value in zip(tensors(forward(names)), whole)]
        why = judged(whole, half, dims, again, unlike, single)
        del whole, half, single
        if more is not None and not why:
            if shared:
                raise Unknown("the model draws random numbers for its whole batch")
            more(forward, found, dims, noise.draws)
    if why:
        return Answer("no", describe(module, why), dims)
    return Answer("yes", "", dims)


def judged(whole, half, dims, again, unlike, single):
    """Return why the rows depend on each other, "" where they do not. For each output: again has whether the same call gave
    another one; unlike, whether a call with the rows in each of two orders did; single, what those calls gave that has no rows."""
    for i, (value, dim) in enumerate(zip(whole, dims)):
        if again[i]:
            return "computes something else in each call"
        if dim is None:
            if value.is_floating_point() and far((single[0][i].double() + single[1][i].double()) / 2, value, ALIKE):
                return "gives a number that is neither a mean nor a sum over the rows"
            continue
        if any(each[i] for each in unlike):
            return OTHERS
        if far(half[i], value, NEARLY, dim):
            return "computes a row by the size of the batch"
    return ""


def describe(module, why):
    words = "the forward of %s %s" % (type(module).__name__, why)
    batch, instance = torch.nn.modules.batchnorm._NormBase, torch.nn.modules.instancenorm._InstanceNorm
    norm = next((m for m in module.modules() if isinstance(m, batch) and not isinstance(m, instance) and m.training), None)
    if norm is not None and why == OTHERS:
        words += "; it has %s, which takes its statistics over the batch" % type(norm).__name__
    return words


def dimension(whole, half, few):
    """Return the dimension that counts the rows, None where the shape does not follow from
    them, "unlike" where it does in another way."""
    if whole.shape == half.shape:
        return None
    if whole.dim() != half.dim():
        return "unlike"
    apart = [d for d in range(whole.dim()) if whole.shape[d] != half.shape[d]]
    fits = len(apart) == 1 and whole.shape[apart[0]] % few == 0 and whole.shape[apart[0]] == 2 * half.shape[apart[0]]
    return apart[0] if fits else "unlike"


def far(one, other, apart, dim=None, order=None):
    """Return whether two outputs are further apart than rounding. With a dimension: whether the first has other rows than
    those of the second in an order, or than its first ones. Nothing as large as an output is made for that."""
    if (dim is None or order) and one.shape != other.shape:
        return True
    pairs = [(one, other)]
    if dim is not None:
        each = other.shape[dim] // len(order) if order else one.shape[dim]
        pairs = [(one.narrow(dim, i * each, each), other.narrow(dim, row * each, each)) for i, row in enumerate(order or [0])]
    if not one.is_floating_point() and not one.is_complex():
        return not all(torch.equal(*pair) for pair in pairs)
    bits = 16 if torch.is_autocast_enabled() else torch.finfo(other.dtype).bits
    size, gap = distance((a, b) for x, y in pairs for a, b in zip(x.reshape(-1).split(AT_ONCE), y.reshape(-1).split(AT_ONCE)))
    return not gap <= apart.get(bits, 1e-1) * size + 1e-12 and not (gap != gap and size != size)


def distance(pairs):
    """Return the norm of the second of pairs of tensors, and that of the differences, in double precision: a pair at a
    time."""
    size = gap = 0.0
    for one, other in pairs:
        one, other = one.double(), other.double()
        size, gap = math.hypot(size, float(other.norm())), math.hypot(gap, float((one - other).norm()))
    return size, gap


def check(root, module):
    """Raises Unknown where the module must not be run for a try."""
    if exclusions.compiled(root):
        raise Unknown("the model is compiled")
    if exclusions.is_shared_out(root):
        raise Unknown("the ranks share the model's parameters")
    if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
        raise Unknown("the model's parameters are not there before its first forward")
    for m in module.modules():
        hooks = list(m._forward_hooks.values()) + (list(m._forward_pre_hooks.values()) if m is module else [])
        if not all(map(exclusions.is_harmless, hooks)):
            raise Unknown("%s has a hook on its forward" % type(m).__name__)


class Batch:
    """Which dimension of which tensor counts the rows: dim of most, and the other of the first two where that alone fits,
    as of the hidden state of an LSTM."""

    def __init__(self, args, kwargs, size, whole=()):
        self.whole = set(whole)
        found = [t for t in tensors([*args, *kwargs.values()]) if t.dim()]
        self.dim, self.rows = 0, 0
        for dim in (0, 1):
            if size and not self.rows and any(t.dim() > dim and t.shape[dim] == size for t in found):
                self.dim, self.rows = dim, size
        if not self.rows and found:
            largest = max(found, key=lambda t: t.numel())
            # Tokens or labels have the rows first; a hidden state beside them may be larger, and has them second.
            named = [t.shape[0] for t in found if not t.is_floating_point() and t.shape[0] in largest.shape[:2]]
            self.rows = max(named, default=largest.shape[0])

    def take(self, value, rows, depth=0):
        """Return those rows of a batch: a list of them, or a slice."""
        if isinstance(value, torch.Tensor):
            dim = self.dim_of(value)
            if dim is None:
                return value.detach() if isinstance(rows, slice) else places.copied(value)
            if isinstance(rows, slice):
                return value.detach().narrow(dim, rows.start, rows.stop - rows.start)
            return value.detach().index_select(dim, torch.tensor(rows, device=value.device))
        if depth > 4 or isinstance(value, (str, bytes, int, float, bool, type(None), torch.device, torch.dtype)):
            return value
        if type(value) in (list, tuple):
            if depth and len(value) == self.rows and all(isinstance(v, (dict, torch.Tensor)) for v in value):
                if isinstance(rows, slice):
                    return [self.row(v) for v in value[rows]]
                return [places.copied(value[i]) for i in rows]
            return type(value)(self.take(v, rows, depth + 1) for v in value)
        if type(value) is dict or hasattr(value, "keys") and hasattr(value, "items"):
            return {k: self.take(v, rows, depth + 1) for k, v in value.items()}
        if not tensors(value):
            return value
        raise Unknown("%s is given to the model, of which no rows can be taken" % type(value).__name__)

    def counts(self, tensor):
        """Return whether a tensor has the rows of the batch."""
        return self.dim_of(tensor) is not None

    def dim_of(self, tensor):
        """Return the dimension of a tensor that counts the rows, None for none."""
        if id(tensor) in self.whole:
            return None
        return next((dim for dim in (self.dim, 1 - self.dim) if tensor.dim() > dim and tensor.shape[dim] == self.rows), None)

    def row(self, value):
        return value.detach() if hasattr(value, "detach") else dict(value)


def versions(given):
    """Return the versions of the tensors in arguments."""
    return list(map(places.version, tensors(given)))


def tensors(value):
    """Return the tensors in what a module is given or returns."""
    found = callstate.tensors_in(value)
    if any(t.layout != torch.strided or type(t) not in (torch.Tensor, torch.nn.Parameter) for t in found):
        raise Unknown("a tensor is no plain one")
    return found


FILLED = {
    "uniform_": 0.5, "normal_": 0, "exponential_": 1, "random_": 0, "log_normal_": 1, "geometric_": 1, "cauchy_": 0,
    "rand": 0.5, "rand_like": 0.5, "randn": 0, "randn_like": 0, "randint": 0, "randint_like": 0, "normal": 0,
}


class Plain(TorchDispatchMode):
    """A context in which nothing is random, and no rank waits for others."""

    draws = False  # whether random numbers were drawn

    def __init__(self):
        super().__init__()
        self.sizes: list = []  # of the tensors that were drawn, or of which some was dropped

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        space, _, name = str(func).partition(".")
        if "c10d" in space:
            raise Unknown("the ranks wait for each other in the forward")
        name = name.partition(".")[0]
        dropout = [v for v in dropouts(func, args) + [kwargs.get(k) for k in ("dropout", "dropout_p")] if v]
        if dropout or name in FILLED or name in ("bernoulli", "bernoulli_", "randperm", "native_dropout"):
            self.draws = True
        if name in FILLED:
            filled = func(*args, **kwargs).fill_(FILLED[name])
            self.sizes.append(filled.numel())
            return filled
        if dropout or name in ("bernoulli", "bernoulli_", "native_dropout"):
            self.sizes.append(args[0].numel())
        if name in ("bernoulli", "bernoulli_"):
            p = args[1] if len(args) > 1 else kwargs.get("p", 0.5 if name == "bernoulli_" else args[0])
            return (args[0] if name == "bernoulli_" else args[0].clone()).copy_(torch.as_tensor(p))
        if name == "randperm":
            return func(*args, **kwargs).sort(descending=True)[0]
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        return func(*without_dropout(func, args), **{k: 0.0 if k in ("dropout", "dropout_p") else v for k, v in kwargs.items()})


def dropouts(func, args):
    """Return the shares of its input that an operation is to drop."""
    names = [a.name for a in func._schema.arguments[:len(args)]]
    return [a for name, a in zip(names, args) if name in ("dropout", "dropout_p") and isinstance(a, float)]


def without_dropout(func, args):
    """Return the arguments of an operation that drops some of its input with none dropped."""
    names = [a.name for a in func._schema.arguments[:len(args)]]
    return [0.0 if name in ("dropout", "dropout_p") and isinstance(a, float) else a for name, a in zip(names, args)]
