# Cross entropy in parts of the rows of its logits. PyTorch's own function computes each part, in the
# forward and again in the backward, so that copies of the logits in fp32 exist for one part at a time.

import torch

from ..base import room, wall
from ..model import rootstate

# Bytes of the logits in fp32 from which parts are used, and the part of the memory that the process may
# have: under a small limit it is smaller logits that decide, where PyTorch holds three such copies.
LEAST, SHARE = 256 << 20, .05
PART, MOST, FEW = 32 << 20, 64, 16  # bytes of one part's logits in fp32; the most parts, and those of logits below LEAST
NONE, MEAN = 0, 1  # reductions, as torch.nn._reduction numbers them

changed: list = []  # functions that are called where the job turns out to write to the logits


def size(logits):
    """Return the bytes of logits in fp32."""
    return logits.numel() * 4


def least(allowed):
    """Return the bytes of logits in fp32 from which parts are used, where the process may have so many bytes."""
    return min(LEAST, int(SHARE * allowed)) if allowed else LEAST


def is_large(size, device):
    """Return whether logits of so many bytes in fp32 can be computed in parts. To ask for the memory takes microseconds."""
    return size >= LEAST or size >= LEAST // 16 and size >= least(room.allowed(device))


def works(torch, logits, target, weight, reduction, ignore, smoothing):
    """Return whether parts give what PyTorch's function gives for these arguments."""
    plain = (torch.Tensor, torch.nn.Parameter)
    if type(logits) not in plain or not is_large(size(logits), logits.device) or logits.dim() < 2 or not logits.is_floating_point() or logits.layout != torch.strided:
        return False
    if type(target) not in plain or target.requires_grad or weight is not None and (type(weight) not in plain or weight.requires_grad):
        return False
    wanted = logits.shape if target.is_floating_point() else logits.shape[:1] + logits.shape[2:]
    return target.shape == wanted and logits.device.type in ("cpu", "cuda") and not transformed(torch, logits) and len(parts(logits)) > 1


def transformed(torch, logits):
    """Return whether a transform of torch.func, or forward-mode differentiation, is active: none
    of them takes an autograd function."""
    active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
    level = getattr(getattr(torch._C, "_functorch", None), "maybe_get_level", lambda tensor: -1)
    return active() or level(logits) >= 0 or torch.autograd.forward_ad._current_level >= 0


def cross_entropy(plain, logits, target, weight, reduction, ignore, smoothing):
    """Return what plain, torch._C._nn.cross_entropy_loss, gives for the same arguments."""
    losses = CrossEntropyInParts.apply(plain, logits, target, weight, ignore, smoothing)
    if reduction == NONE:
        return losses
    wide = torch.float64 if losses.dtype == torch.float64 else torch.float32
    total = losses.sum(dtype=wide)
    if reduction == MEAN:
        total = total / weights(torch, losses, target, weight, ignore, wide)
    return total.to(losses.dtype)


def weights(torch, losses, target, weight, ignore, wide):
    """Return the divisor of a mean: the number of rows, or the sum of their weights."""
    if target.is_floating_point():
        return losses.numel()
    with torch.no_grad():
        counted = target != ignore
        if weight is None:
            return counted.sum()
        return (weight.to(wide)[torch.where(counted, target, torch.zeros_like(target)).long()] * counted).sum()


def parts(logits):
    """Return the parts, each as (first row, rows, first place, places): in the first dimension, and
    in the third where a single row is too large."""
    rows, one = logits.shape[0], max(PART if size(logits) >= LEAST else min(PART, size(logits) // FEW), size(logits) // MOST)
    row = size(logits) // rows
    each = max(one // row, 1)
    first = [(i, min(each, rows - i)) for i in range(0, rows, each)]
    if row <= one or logits.dim() < 3:
        return [(i, n, 0, 0) for i, n in first]
    places = logits.shape[2]
    each = max(one * places // row, 1)
    return [(i, n, j, min(each, places - j)) for i, n in first for j in range(0, places, each)]


def cut(tensor, part, dim):
    """Return one part of a tensor whose dimension dim has the places."""
    i, n, j, m = part
    tensor = tensor.narrow(0, i, n)
    return tensor.narrow(dim, j, m) if m else tensor


class CrossEntropyInParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plain, logits, target, weight, ignore, smoothing):
        ctx.save_for_backward(logits, target, weight)
        ctx.rest, ctx.cast = (plain, ignore, smoothing), rootstate.autocast(torch)
        losses = None
        for part in parts(logits):
            rows = plain(cut(logits, part, 2), target_of(target, part), weight, NONE, ignore, smoothing)
            if losses is None:
                losses = rows.new_empty(logits.shape[:1] + logits.shape[2:])
            cut(losses, part, 1).copy_(rows)
        return losses

    @staticmethod
    @wall.remedy
    def backward(ctx, gradient):
        try:
            logits, target, weight = ctx.saved_tensors
        except RuntimeError as e:  # they were written to since
            for each in changed:
                wall.alone(each)()
            raise wall.raising(e)
        plain, ignore, smoothing = ctx.rest
        if torch.is_grad_enabled():  # the gradient is differentiated again: as PyTorch does it
            with rootstate.cast_as(ctx.cast):
                losses = plain(logits, target, weight, NONE, ignore, smoothing)
            return (None,) + torch.autograd.grad(losses, logits, gradient, create_graph=True) + (None,) * 4
        whole, inner = torch.empty_like(logits), logits.detach()
        for part in parts(logits):
            piece = cut(inner, part, 2).detach().requires_grad_()
            with torch.enable_grad(), rootstate.cast_as(ctx.cast):
                rows = plain(piece, target_of(target, part), weight, NONE, ignore, smoothing)
            cut(whole, part, 2).copy_(torch.autograd.grad(rows, piece, cut(gradient, part, 1))[0])
            del rows, piece
        return None, whole, None, None, None, None


def target_of(target, part):
    return cut(target, part, 2 if target.is_floating_point() else 1)
