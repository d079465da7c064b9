# The loss of a micro batch, computed again with other samples: with half of the samples twice,
# and with the other half twice. If each sample's gradient is unchanged then, and the mean of the
# two losses is the original loss, the loss is a sum of its samples' parts. The root's
# forward is not run again: what it gave for a sample goes with that sample, since rows.py
# shows that it computes each row by itself. No tensor of the job is written to.
import sys

from . import oldgraph, room, rows as rows_part, tape as tapes

Unproven, Call = tapes.Unproven, tapes.Call
version, numbers, filled = tapes.version, tapes.numbers, tapes.filled

MOST_BYTES = 1 << 27  # of all results: larger losses are not computed again
TIMES = 6  # as many bytes as the results have are needed: copies of the outputs, and gradients
PIECE = 1 << 18  # elements compared at once: a batch needs several times its memory in double precision
ALIKE = {16: 3e-2, 32: 1e-4, 64: 1e-6}


class Coupled(Exception):
    """Raised with the operation that mixes the samples of a batch."""


class Again:
    """Computes a tape's loss once more, with samples in another order."""

    def __init__(self, tape, ops, loss, rows, dims):
        self.tape, self.ops, self.loss, self.rows, self.dims = tape, ops, loss, rows, dims
        self.inputs = None  # of the root's calls, as they were

    def __call__(self, order, scale=1.0, keep=False):
        """Return the loss, and its gradients by the root's outputs and by parameters."""
        torch = sys.modules["torch"]
        self.order, self.scale, self.keep, self.seen = order, scale, keep, {}
        self.values, self.given, self.outs, self.maps = {}, [], [], []
        self.parameters = {}
        autocast = [torch.autocast(kind, enabled=False) for kind in ("cpu", "cuda") if kind == "cpu" or torch.cuda.is_available()]
        for each in autocast:
            each.__enter__()
        try:
            for op in self.ops:
                with torch.set_grad_enabled(op.grad):
                    self.call(op) if isinstance(op, Call) else self.run(op)
            loss = self.value(self.loss)
            self.values = {}  # what the backward pass needs is kept by the loss
            leaves = [leaf for leaf in self.outs + list(self.parameters.values()) if leaf is not None]
            with torch.enable_grad():
                found = torch.autograd.grad(loss, leaves, allow_unused=True) if leaves and loss.requires_grad else [None] * len(leaves)
        finally:
            for each in autocast[::-1]:
                each.__exit__(None, None, None)
        found, gradients = list(found), []
        for leaf in self.outs:
            gradients.append(None if leaf is None else found.pop(0))
        self.outs = []
        return loss.detach(), gradients, dict(zip(self.parameters, found))

    def value(self, n):
        if n not in self.values:
            self.values[n] = self.source(self.tape.tensors[n], n)
        return self.values[n]

    def source(self, tensor, n):
        """Return a tensor that was there before the micro batch, with its rows in order."""
        torch = sys.modules["torch"]
        if version(tensor) != self.tape.versions[n]:
            raise Unproven("the batch or a tensor of the model is written to before the backward pass")
        if self.tape.is_row(tensor):
            if tensor.dim() == 0 or tensor.shape[0] != self.rows:
                raise Unproven("the tensors of a batch have several lengths")
            return pick(tensor, 0, self.order)
        if isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad and tensor.is_leaf:
            own = tensor.detach()
            if tensor.requires_grad:
                own = self.parameters[n] = own.requires_grad_()
            return own.view_as(own)
        if tensor.requires_grad:
            raise Unproven("the loss follows from a tensor that the model keeps apart from its output")
        return tensor.detach().clone() if tensor.numel() <= tapes.SMALL else tensor.detach()

    def run(self, op):
        torch = sys.modules["torch"]
        for n in numbers((op.args, op.kwargs)):
            self.value(n)
        args, kwargs = filled(op.args, self.values), {k: filled(v, self.values) for k, v in op.kwargs.items()}
        if op.kept is not None:
            kept = [self.drawn(t) for t in op.kept]
            out = [args[0].copy_(kept[0])] if op.name.endswith("_") else kept
        elif op.name == "native_dropout":
            raise Unproven("dropout is computed outside of the model")
        else:
            out = op.func(*args, **kwargs)
            out = list(out) if isinstance(out, (tuple, list)) else [out]
        for n, value in zip(op.outs, out):
            if n:
                self.values[n] = value
        if self.keep:
            self.seen[op] = [v.detach().clone() for v in out if isinstance(v, torch.Tensor) and v.numel() <= tapes.SMALL]

    def drawn(self, value):
        """Return random numbers: those of a sample go with it."""
        dim = next((d for d in range(value.dim()) if value.shape[d] == self.rows), None)
        return value.clone() if dim is None else pick(value, dim, self.order)

    def call(self, op):
        """Return what the root gave for the samples that it would be given now."""
        given = [self.value(n.n).detach() for n in op.given]
        self.given.append(given)
        where = None
        if self.inputs is not None:
            where = arrangement(self.inputs[len(self.given) - 1], given, self.order, self.rows)
            if where is None and (self.dims is None or any(dim is not None for dim in self.dims)):
                raise Unproven("what the model is given was not seen to come from the batch")
        for i, n in enumerate(op.outs):
            self.values[n] = self.output(op, i, n, where)

    def output(self, op, i, n, where):
        value = self.tape.tensors[n]
        if version(value) != self.tape.versions[n]:
            raise Unproven("the output of the model is written to before the backward pass")
        requires, value, own = value.requires_grad, value.detach(), False
        dim = self.dims[i] if self.dims is not None and i < len(self.dims) else None
        moved: tuple = (n, None, None)
        if where is not None and dim is not None:
            size, rows = value.shape[dim], where[1]
            each = size // len(rows)
            index = [r * each + k for r in rows for k in range(each)]
            value, moved, own = pick(value, dim, index), (n, dim, index), True
        elif dim is None and value.is_floating_point():
            value, moved, own = value * self.scale, (n, None, None), True
        self.maps.append(moved)
        leaf = (value if own else value.clone()).requires_grad_() if requires else None
        self.outs.append(leaf)
        return value if leaf is None else leaf.view_as(leaf)


def pick(tensor, dim, order):
    return tensor.detach().index_select(dim, sys.modules["torch"].tensor(order, device=tensor.device))


def arrangement(before, now, order, rows):
    """Return how the rows of the root's input are arranged now: (dimension, the row that each
    was before); None where the input does not follow from the samples."""
    found = None
    for one, other in zip(before, now):
        if one.shape != other.shape:
            raise Coupled("the model is given another number of rows where samples are others")
        if same(one, other):
            continue
        fits = next((m for m in maps(one, order, rows) if same(pick(one, *m), other)), None)
        if fits is None:
            raise Coupled("the input of the model mixes the samples of a batch")
        if found is not None and found[1] != fits[1]:
            raise Unproven("the inputs of the model have several numbers of rows")
        found = fits
    return found


def maps(tensor, order, rows):
    """Return the ways in which samples may be arranged in a tensor: as its rows or columns,
    several times behind each other, and several rows each."""
    for dim in range(min(2, tensor.dim())):
        times, rest = divmod(tensor.shape[dim], rows)
        if times and not rest:
            yield dim, [t * rows + r for t in range(times) for r in order]
            if times > 1:
                yield dim, [r * times + t for r in order for t in range(times)]


def same(one, other):
    torch = sys.modules["torch"]
    if not one.is_floating_point():
        return torch.equal(one, other)
    if one.shape != other.shape:
        return False
    pieces = zip(one.reshape(-1).split(PIECE), other.reshape(-1).split(PIECE))
    return all(torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-9, equal_nan=True) for a, b in pieces)


def halves(rows, seed):
    """Return two orders, each of half the samples twice: together they have each sample twice."""
    import random

    draw = random.Random(seed)
    names = draw.sample(range(rows), rows)
    middle, odd = rows // 2, rows % 2
    both = [names[:middle] * 2 + names[rows - odd:], names[middle:rows - odd] * 2 + names[rows - odd:]]
    for order in both:
        draw.shuffle(order)
    return both


def far(one, other, torch):
    """Return whether a tensor is further from another than by rounding."""
    if one is None or other is None:
        return (one is None) != (other is None) and bool((other if one is None else one).any())
    return apart(zip(pieces(one), pieces(other)), precision(one, other, torch))


def pieces(tensor):
    return tensor.reshape(-1).split(PIECE)


def precision(one, other, torch):
    """Return the bits of the less precise of two tensors' numbers."""
    return 16 if torch.is_autocast_enabled() else min(torch.finfo(one.dtype).bits, torch.finfo(other.dtype).bits)


def apart(pairs, bits):
    """Return whether pairs of pieces are further apart in all than by rounding."""
    size, gap = rows_part.distance(pairs)
    return not gap <= ALIKE[max(bits, 16)] * size + 1e-12


def prove(tape, ops, loss, rows, dims):
    """Raises Coupled or Unproven where the loss is not seen to be a sum of its samples' parts."""
    torch = sys.modules["torch"]
    if tape.bytes > MOST_BYTES:
        raise Unproven("the loss is too large to be computed again")
    left = room.free(loss.device)
    if left is not None and left < TIMES * tape.bytes:
        raise Unproven("too little memory is left to compute the loss again")
    check_functions(loss, {tape.tensors[o].grad_fn for op in ops if isinstance(op, Call) for o in op.outs})
    again = Again(tape, ops, tape.find(loss), rows, dims)
    plain = again(list(range(rows)))
    if far(plain[0], loss.detach(), torch):
        raise Unproven("the loss is another when it is computed again")
    if not any(g is not None for g in plain[1]) and not any(g is not None for g in plain[2].values()):
        raise Unproven("what the gradients follow from was not seen")
    again.inputs = again.given
    for seed in (1, 2):
        compare(again, plain, halves(rows, seed), torch)


def compare(again, plain, orders, torch):
    """Compares a loss and its gradients with those of half the samples twice, and of the others."""
    losses, parameters, wrong = [], [], False
    for order, scale in zip(orders, (1.5, 0.5)):
        loss, gradients, found = again(order, scale)
        losses.append(loss)
        parameters.append(found)
        wrong = wrong or any(changed(*each, torch) for each in zip(gradients, plain[1], again.maps))
        del gradients  # they are as large as the outputs
    wrong = wrong or far((losses[0].double() + losses[1].double()) / 2, plain[0], torch)
    for n, before in plain[2].items():
        one, other = (found.get(n) for found in parameters)
        if one is None or other is None or before is None:
            wrong = wrong or not (one is None and other is None and before is None)
        else:
            means = ((a.double() + b.double()) / 2 for a, b in zip(pieces(one), pieces(other)))
            wrong = wrong or apart(zip(means, pieces(before)), precision(one, before, torch))
    if wrong:
        raise Coupled(culprit(again, orders))


def changed(gradient, before, moved, torch):
    """Return whether an output's gradient is another than that of the same samples before."""
    _, dim, index = moved
    if gradient is None or before is None or dim is None:
        return far(gradient, before, torch)
    if gradient.shape[dim] != len(index):
        return True
    few = max(PIECE * len(index) // max(gradient.numel(), 1), 1)  # rows at a time
    starts = range(0, len(index), few)
    pairs = ((gradient.narrow(dim, n, min(few, len(index) - n)), pick(before, dim, index[n:n + few])) for n in starts)
    return apart(pairs, precision(gradient, before, torch))


def culprit(again, orders):
    """Names the first operation after which samples have changed."""
    rows, place = again.rows, ""
    try:
        inputs, again.inputs = again.inputs, None
        again(list(range(rows)), keep=True)
        before, again.inputs = again.seen, inputs
        again(orders[0], keep=True)
        for op in again.ops:
            place = op.line or place
            for one, other in zip(before.get(op, []), again.seen.get(op, [])):
                moved = one.shape == other.shape and (same(one, other) or any(close(pick(one, *m), other) for m in maps(one, orders[0], rows)))
                if not moved and (one.dim() or op.name in ("sum", "mean", "max", "min", "std", "var", "norm", "median")) and one.shape != () and rows in one.shape:
                    return "%s mixes the samples of a batch%s" % (op.name.strip("_"), " (%s)" % op.line if op.line else "")
    except Exception:
        pass
    return "the loss is no sum of the samples' parts%s" % (" (%s)" % place if place else "")


def close(one, other):
    torch = sys.modules["torch"]
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-6, equal_nan=True)


def check_functions(loss, outputs):
    """Raises Unproven if a function of the job has its own backward pass."""
    for n, node in enumerate(oldgraph.nodes_from([loss.grad_fn], outputs)):
        if isinstance(node, sys.modules["torch"].autograd.function.BackwardCFunction):
            raise Unproven("%s has a backward pass of the job's own" % type(node).__name__.replace("Backward", ""))
        if n > tapes.MOST_OPS:
            raise Unproven("too much is computed before the backward pass")
