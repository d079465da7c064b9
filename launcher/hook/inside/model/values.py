# The tensors in what a module is given or returns.
import torch

MOST = 64  # items of a container that are looked at
DEEPEST = 5  # containers in containers


def named(value, path=(), most=MOST):
    """Return (path, tensor) of each tensor in lists, tuples and dictionaries; path has the indices and keys."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if len(path) == DEEPEST:
        return []
    if hasattr(value, "keys") and hasattr(value, "items"):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, (list, tuple)) else []
    return [found for key, each in items[:most] for found in named(each, path + (key,), most)]


def tensors(value):
    return [tensor for _, tensor in named(value)]
