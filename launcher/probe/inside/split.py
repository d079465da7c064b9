# The root in parts of the batch: its forward runs without gradients, part by part, and its
# backward runs each part again with gradients. The job's loop and its loss see the whole batch.
import sys

from . import rootstate, rows

Unrepeatable = rootstate.Unrepeatable


class Split:
    """Runs the calls of a root in parts: those with inputs as large as the smallest that failed."""

    name = "split"

    def __init__(self, guard):
        self.guard, self.parts, self.asked = guard, 1, None
        self.active, self.size, self.longest = False, float("inf"), float("inf")

    def begins(self, size, longest):
        self.active = self.parts > 1 and (size >= self.size or longest >= self.longest)

    def refusal(self, call):
        """Return why the calls of this model cannot run in parts, "" if they can."""
        torch, known = self.guard.torch, self.guard.known
        batch_norm = torch.nn.modules.batchnorm._BatchNorm
        if any(isinstance(m, batch_norm) and m.training for m in known.modules):
            return "the model takes statistics over the batch"
        if any(not isinstance(place, rootstate.PythonRandom) for place in known.places):
            return "the forward changes the model's state"
        if self.asked is None:
            self.asked = rows.rows_are_independent(self.guard.root(), call.args, call.kwargs)
        if self.asked.word != "yes":
            return self.asked.reason
        if any(dim is None for dim in self.asked.dims):
            return "an output of the model has no row for each sample"
        return ""

    def more(self, call):
        """Return whether the call can run in more parts than it did, and has it do so."""
        batch = rows.Batch(call.args, call.kwargs, 0)
        if self.parts * 2 > batch.rows:
            return False
        self.parts *= 2
        return True

    def run(self, plain, root, args, kwargs):
        """Call the root in parts."""
        return Parts(self, plain, root, args, kwargs).run()

    def keep(self, call):
        self.size, self.longest = min(self.size, call.size), min(self.longest, call.longest)


class Parts:
    """One call of the root in parts."""

    def __init__(self, split, plain, root, args, kwargs):
        self.split, self.plain, self.root = split, plain, root
        self.batch, self.dims, self.torch = rows.Batch(args, kwargs, 0), split.asked.dims, split.guard.torch
        self.given, self.rebuild = flatten((list(args), dict(kwargs)))
        self.count = min(split.parts, self.batch.rows)
        self.random, self.cast = [], rootstate.autocast(self.torch)
        self.shape = None  # gives the output from its tensors

    def bounds(self, i, whole=None):
        n = self.batch.rows if whole is None else whole
        return n * i // self.count, n * (i + 1) // self.count

    def part(self, tensors, i):
        """Return one part of the tensors that the root is given."""
        low, high = self.bounds(i)
        dim, n = self.batch.dim, self.batch.rows
        return [t.narrow(dim, low, high - low) if t.dim() > dim and t.shape[dim] == n else t for t in tensors]

    def call(self, tensors, i):
        (args, kwargs) = self.rebuild(self.part(tensors, i))
        return flatten(self.plain(self.root, *args, **kwargs))

    def run(self):
        torch = self.torch
        parameters = [p for p in self.split.guard.known.parameters if p.requires_grad]
        if not torch.is_grad_enabled():
            return self.shape_of(self.forward(self.given))
        made = function().apply(self, len(self.given), *self.given, *parameters)
        return self.shape_of(made)

    def shape_of(self, made):
        return self.shape(list(made))

    def forward(self, tensors):
        """Return the outputs of the whole batch."""
        torch, found = self.torch, []
        with torch.no_grad():
            for i in range(self.count):
                self.random.append(self.random_now())
                made, shape = self.call(tensors, i)
                if self.shape is None:
                    self.shape = shape
                if len(made) != len(self.dims):
                    raise Unrepeatable("the parts have other outputs")
                found.append(made)
        return [torch.cat(each, dim) for each, dim in zip(zip(*found), self.dims)]

    def random_now(self):
        torch = self.torch
        return torch.get_rng_state(), [torch.cuda.get_rng_state(d) for d in self.split.guard.known.devices]

    def backward(self, tensors, gradients, n):
        """Return the gradients of the tensors: those given to the root, and its parameters."""
        torch, after = self.torch, self.random_now()
        total: list = [None] * len(tensors)
        wanted = [j for j, t in enumerate(tensors) if t.requires_grad]
        for i in range(self.count):
            rootstate.set_random(self.split.guard.known.devices, *self.random[i])
            inner = [t.detach().requires_grad_(t.requires_grad) for t in tensors[:n]]
            with torch.enable_grad(), rootstate.cast_as(self.cast):
                made, _ = self.call(inner, i)
            pairs = []
            for output, gradient, d in zip(made, gradients, self.dims):
                if gradient is not None and output.requires_grad:
                    low, high = self.bounds(i, gradient.shape[d])
                    pairs.append((output, gradient.narrow(d, low, high - low)))
            of = [inner[j] if j < n else tensors[j] for j in wanted]
            found = torch.autograd.grad([o for o, _ in pairs], of, [g for _, g in pairs], allow_unused=True)
            del made, pairs, inner
            for j, gradient in zip(wanted, found):
                if gradient is not None:
                    total[j] = gradient if total[j] is None else total[j].add_(gradient)
            del found
        rootstate.set_random(self.split.guard.known.devices, *after)
        return total


def function():
    """Return the autograd function; it is made once torch is there."""
    import torch

    if "function" in made:
        return made["function"]

    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, parts, n, *tensors):
            ctx.parts, ctx.n = parts, n
            ctx.save_for_backward(*tensors)
            outputs = tuple(parts.forward(tensors[:n]))
            ctx.mark_non_differentiable(*[o for o in outputs if not o.is_floating_point()])
            return outputs

        @staticmethod
        def backward(ctx, *gradients):
            return (None, None) + tuple(ctx.parts.backward(ctx.saved_tensors, gradients, ctx.n))

    made["function"] = Whole
    return Whole


made: dict = {}


def flatten(value):
    """Return the tensors in a value, and what makes such a value from others."""
    from torch.utils import _pytree

    flat, spec = _pytree.tree_flatten(value)
    torch = sys.modules["torch"]
    at = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]

    def rebuild(tensors):
        new = list(flat)
        for i, t in zip(at, tensors):
            new[i] = t
        return _pytree.tree_unflatten(new, spec)

    return [flat[i] for i in at], rebuild
