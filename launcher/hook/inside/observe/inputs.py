# What a module is called with: the largest tensor, and the number of samples.
from ..model import values


def largest(args, kwargs):
    """Return the tensor with the most elements among arguments, None for none."""
    return max(values.tensors((args, kwargs)), key=lambda tensor: tensor.numel(), default=None)


def elements(shape):
    return shape.numel()


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def new_bytes(output, given):
    """Return the bytes of the tensors in an output that are not among the arguments."""
    known = set(map(id, values.tensors(given)))
    return sum({id(t): bytes_of(t) for t in values.tensors(output) if id(t) not in known}.values())


def samples(args, kwargs):
    """Return the number of samples: the first dimension of all tensors, that of the largest
    where they differ; 0 for none."""
    own = largest(args, kwargs)
    return batch(args, kwargs) or (own.shape[0] if own is not None and own.dim() > 1 else 0)


def batch(args, kwargs):
    """Return the first dimension of all tensors; 0 where they differ, or all have but one dimension."""
    shapes = [tensor.shape for tensor in values.tensors((args, kwargs)) if tensor.dim()]
    sizes = {shape[0] for shape in shapes}
    return sizes.pop() if len(sizes) == 1 and any(len(shape) > 1 for shape in shapes) else 0
