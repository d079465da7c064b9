# Logits in fp32 that are converted later. Losses convert all logits, cut the last token off and flatten what is left
# before they call cross_entropy, which would be too late for parts. So where the loss is to be computed in parts,
# a function that names a loss gets a tensor that looks like its logits in fp32, and refers to them as they are. It can be
# cut and flattened; cross_entropy converts it in parts; anything else gets the whole tensor in fp32.
import functools
import re
import sys

import torch

from ..base import ranout, wall, wrapping

HALF = torch.bfloat16, torch.float16
NAMED = re.compile("loss|criterion|entropy", re.IGNORECASE)
LEAST = 1 << 20  # elements of tensors that may be logits

state: dict = {}
known: dict = {}  # by code, whether a function names a loss


def watch(wanted):
    """Have tensors converted to fp32 later, where wanted(tensor) says so, or wanted(tensor, error) after a conversion ran
    out of memory."""
    if "undo" in state:
        return
    state.update(wanted=wanted, undo=[method("float"), method("to")])


def leave():
    for undo in state.pop("undo", ()):
        undo()


def method(name):
    """Put a method of tensors before PyTorch's; return what undoes it."""
    Tensor, full, plain, half, least = torch.Tensor, torch.float32, getattr(torch.Tensor, name), HALF, LEAST

    def convert(self, *args, **kwargs):
        if type(self) is not Tensor or self.dtype not in half or self.numel() < state.get("least", least):
            return plain(self, *args, **kwargs)
        asked = list(args) + list(kwargs.values())
        if name == "float" and asked or name == "to" and (len(asked) != 1 or asked[0] is not full):
            return plain(self, *args, **kwargs)
        return wall.call(plain, converted, wall.ALL, self, *args, **kwargs)

    def converted(own, self, *args, **kwargs):
        if not names_loss(sys._getframe(3).f_code):
            return own(self, *args, **kwargs)
        if not state["wanted"](self):
            try:
                return own(self, *args, **kwargs)
            except Exception as e:
                if not ranout.is_one(e) or not state["wanted"](self, e):
                    raise
        return later(self, self.shape, full)

    return wrapping.put(Tensor, name, functools.wraps(plain)(convert))


def names_loss(code):
    """Return whether a function has the name of a loss, or uses one."""
    if code not in known:
        names = (code.co_name,) + code.co_names + code.co_varnames + code.co_freevars + code.co_cellvars
        known[code] = any(map(NAMED.search, names))
    return known[code]


def later(raw, shape, dtype):
    found = Converted.apply(raw, tuple(shape), dtype)
    found.raw = raw
    return found


class Converted(torch.autograd.Function):
    """What is not known here, such as functions in C++, gets the tensor in fp32, and a graph to the logits."""

    @staticmethod
    def forward(ctx, raw, shape, dtype):
        ctx.was = raw.shape, raw.dtype
        found = torch.Tensor._make_wrapper_subclass(Later, shape, dtype=dtype, device=raw.device)
        found.raw = raw
        return found

    @staticmethod
    @wall.remedy
    def backward(ctx, gradient):
        shape, dtype = ctx.was
        return gradient.reshape(shape).to(dtype), None, None


class Later(torch.Tensor):
    """A tensor in fp32 that is another one, raw, until its numbers are needed."""

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in SHOWN or function is torch.nn.functional.cross_entropy and type(first(args, kwargs)) is Later:
            with untouched():
                return function(*args, **kwargs)
        found = None
        if args and type(args[0]) is Later and function in SHAPED:
            try:
                found = SHAPED[function](args[0], function, args[1:], kwargs)
            except Exception:
                pass  # the whole tensor gives the error, if it is the job's
        return function(*whole(args), **whole(kwargs)) if found is None else found

    @classmethod
    def __torch_dispatch__(cls, function, kinds, args=(), kwargs=None):
        return function(*whole(args), **whole(kwargs or {}))

    def __repr__(self, **kwargs):
        return repr(whole(self))


untouched = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)


def first(args, kwargs):
    return args[0] if args else kwargs.get("input")


def whole(value):
    """Return a value with the whole tensors in it."""
    if type(value) is Later:
        with untouched():
            shape, dtype = value.shape, value.dtype
        return value.raw.to(dtype).reshape(shape)
    if type(value) in (list, tuple):
        return type(value)(map(whole, value))
    return {key: whole(each) for key, each in value.items()} if type(value) is dict else value


def matrix(value):
    """Return the logits of a cross entropy as they are, and whether their classes are in the last dimension of several
    matrices that are not one."""
    raw = value.raw
    with untouched():
        shape = tuple(value.shape)
    if raw.shape == shape:
        return raw, False
    if raw.dim() != 3:
        raw = raw.reshape((-1,) + raw.shape[-2:])
    try:
        return raw.view(shape), False
    except RuntimeError:
        return raw, True


# What is done to the logits as they are. Each function returns None for what is not.


def reshaped(value, function, args, kwargs):
    new = function(torch.empty(tuple(value.shape), device="meta"), *args, **kwargs)
    return later(value.raw, new.shape, value.dtype) if new.dtype == value.dtype and new.dim() > 1 and new.shape[-1] == value.shape[-1] else None


def indexed(value, function, args, kwargs):
    index = args[0] if type(args[0]) is tuple else args
    if tuple(value.raw.shape) != tuple(value.shape) or not all(each is Ellipsis or type(each) in (slice, int) for each in index):
        return None
    raw = value.raw[args[0]]
    return later(raw, raw.shape, value.dtype) if raw.dim() > 1 and raw.shape[-1] == value.shape[-1] else None


def same(value, function, args, kwargs):
    asked = list(args) + list(kwargs.values())
    return value if all(each is value.dtype or each == value.device or each is torch.contiguous_format for each in asked) else None


Tensor = torch.Tensor
SHAPED = {
    Tensor.view: reshaped, Tensor.reshape: reshaped, Tensor.flatten: reshaped, torch.flatten: reshaped, torch.reshape: reshaped,
    Tensor.__getitem__: indexed, Tensor.contiguous: same, Tensor.float: same, Tensor.to: same,
}
# What is known of a tensor without its numbers.
SHOWN = {getattr(Tensor, name).__get__ for name in (
    "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "grad_fn", "layout", "is_cuda", "output_nr", "_version", "_base", "is_sparse", "grad")}
SHOWN |= {getattr(Tensor, name) for name in (
    "size", "dim", "ndimension", "numel", "nelement", "__len__", "is_floating_point", "is_complex", "stride", "is_contiguous", "element_size",
    "get_device", "register_hook", "retain_grad", "_is_view", "is_inference")}
