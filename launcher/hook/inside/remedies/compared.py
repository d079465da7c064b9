# Compares a recomputed block's second run with its first, in the first steps: if they differ,
# the gradients would differ from the job's own. Little of the first output is kept: the sums
# of every 1021st element, and its length.
import contextlib
import sys

import torch

from ..base import wall
from ..model import callstate, places

STEPS = 2
LATEST = 16  # steps after which blocks that are never run again are not compared
PLAIN = torch.Tensor, torch.nn.Parameter
BUCKETS = 1021  # a prime: no dimension of a model is a multiple of it

# How far two runs of kernels that are not deterministic may be apart, by the bits of a number.
APART = {16: 1e-2, 32: 1e-3, 64: 1e-6}


Differs = wall.Differs


def is_difference(error):
    """Return whether an error is Differs. PyTorch 1.13 raises what a hook on saved tensors raised as a RuntimeError."""
    return isinstance(error, Differs) or type(error) is RuntimeError and str(error).startswith("Differs: ")


class Steps:
    """Chooses the forwards of which the second run is compared: those of the first two steps. Where
    nothing counts steps these are a forward, and the next after a backward."""

    def __init__(self, count=None):
        self.count, self.rounds, self.backward = count, 0, False

    def forward(self):
        """Runs before a forward; returns whether its second run is to be compared."""
        if self.backward:
            self.rounds, self.backward = self.rounds + 1, False
        if self.count is None:
            return self.rounds < STEPS
        return self.count() < (STEPS if self.rounds >= STEPS else LATEST)


def sketch(output):
    """Return a summary of an output, as a list: (shape, type, sums, length) of each tensor."""
    found = []
    with torch.no_grad():
        for tensor in callstate.tensors_in(output):
            if type(tensor) not in PLAIN or not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout != torch.strided or not tensor.numel():
                continue
            flat = torch.view_as_real(tensor).reshape(-1) if tensor.is_complex() else tensor.detach().reshape(-1)
            whole = flat.numel() // BUCKETS * BUCKETS if flat.numel() > 4 * BUCKETS else 0
            sums = flat[:whole].view(-1, BUCKETS).sum(0, dtype=torch.float32) if whole else flat[:0].float()
            found.append((tuple(tensor.shape), tensor.dtype, torch.cat([sums, flat[whole:].float()]), torch.linalg.vector_norm(flat, dtype=torch.float32)))
    return found


def difference(first, second, apart=APART):
    """Return how a second run's output differs from the first one's; "" if it does not. Apart: by the bits of a number, how
    far they may be apart."""
    if [one[:2] for one in first] != [other[:2] for other in second]:
        return "its output has another shape or type"
    if not first:
        return ""
    with torch.no_grad():
        far = torch.stack([torch.stack([(a - b).norm(), n, m]) for (_, _, a, n), (_, _, b, m) in zip(first, second)]).tolist()
    for (_, dtype, _, _), (gap, one, other) in zip(first, far):
        size, least = max(one, other), apart.get(torch.finfo(dtype).bits, 1e-1)
        if not finite(one) and not finite(other):
            continue
        if not finite(gap) or gap > least * size:
            return "its output is another, by %.2g %%" % (100 * gap / size) if finite(gap) else "its output is not finite"
    return ""


def finite(number):
    return abs(number) < float("inf")


def fail(kind, why, tell):
    """Called when a second run differs: the step must not be taken."""
    reason = "%s computes something else when it is run again in the backward pass: %s" % (kind, why)
    if tell:
        tell(reason)
    raise Differs("gpurun checkpoints no block of this job: " + reason)


def early_stop_off():
    """Return a context in which PyTorch runs a block to its end in the backward pass, and not only as far as needed."""
    make = getattr(sys.modules["torch.utils.checkpoint"], "set_checkpoint_early_stop", None)
    return make(False) if make else contextlib.nullcontext()


def checkpoint(function, tell, steps, kind):
    """Return a function to checkpoint with, for a model's own switch, that compares the runs."""

    def checked(own, run, *args, **kwargs):
        compares, kept, before = steps.forward(), [], []

        @wall.remedy
        def compared(*args, **kwargs):
            if not before:
                before.append(drawn())
                output = wall.inner(own, run, *args, **kwargs)
                kept.append(sketch(output) if compares else None)
                return output
            with drawing(before[0]):
                output = wall.inner(own, run, *args, **kwargs)
            if kept and kept[0] is not None:
                steps.backward = True
                why = difference(kept[0], sketch(output))
                if why:
                    fail(kind, why, tell)
            return output

        with early_stop_off() if compares else contextlib.nullcontext():
            return function(compared, *args, **kwargs)

    return wall.wrapped(lambda run, *args, **kwargs: run(*args, **kwargs), checked, wall.ALL)


def drawn():
    """Return the random numbers of Python and NumPy: PyTorch restores only its own in a second run."""
    return [(place, place.read(places.SMALL)) for place in map(places.Random, ("Python", "NumPy"))]


@contextlib.contextmanager
def drawing(before):
    """Draw what was drawn before, and leave no trace."""
    after = drawn()
    try:
        for place, value in before:
            place.put_back(value)
        yield
    finally:
        for place, value in after:
            place.put_back(value)
