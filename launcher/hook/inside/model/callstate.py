# One call of the root as it can be made again: its arguments, and the state before it.
import functools
import sys

from ..base import wall
from . import kinds, rootstate

MOST_ITEMS = 512  # in the arguments of a call
NOTHING: tuple = ()


class Call:
    """A call of the root: its arguments and their sizes, and the state before it.

    begins(call) is called once the sizes are known. Raises Unrepeatable where the call cannot be made again.
    """

    def __init__(self, known, plain, args, kwargs, begins=None):
        self.known, self.own, self.plain, self.args, self.kwargs = known, plain, wall.plain(plain), args, kwargs.copy()
        whole = [*args, *kwargs.values()]
        flat = known.kinds.issuperset(map(type, whole))
        self.given = given = whole if flat else tensors_in([*args, kwargs] if kwargs else args)
        self.versions = rootstate.versions(given)
        self.size, self.longest = extent(given)  # the elements of the inputs, and their longest dimension
        if begins is not None:
            begins(self)
        self.containers = NOTHING if flat else containers(whole)
        self.sequence = sequences()
        self.state = known.before(self.size)

    def check(self):
        """Raises where the call cannot be made again."""
        if rootstate.versions(self.given) != self.versions:
            raise rootstate.Unrepeatable("an input was written to")
        self.state.check()

    def rewind(self):
        for value, inner in self.containers:
            restore(value, inner)
        return self.state.rewind()

    def measured(self, measure, run):
        """Make the call by run() within a context that measures it, and leave nothing of that; return the context."""
        known, present = self.known, None
        try:
            with known.torch.enable_grad(), rootstate.cast_as(self.state.cast), rootstate.lent(known.statistics()):
                present = self.rewind()
                with measure:
                    run(self.plain, known.root(), self.args, self.kwargs)
        finally:
            if present is not None:
                present.put_back()
        return measure


def extent(tensors):
    """Return the elements of tensors, and their longest dimension."""
    size = longest = 0
    for tensor in tensors:
        size += tensor.numel()
        for n in tensor.shape:
            if n > longest:
                longest = n
    return size, longest


@functools.lru_cache(maxsize=None)
def tensor_types():
    return sys.modules["torch"].Tensor


@functools.lru_cache(maxsize=None)
def other_types():
    """Return the types of arguments that neither hold tensors nor are changed by a forward."""
    return str, bytes, int, float, bool, type(None), type, sys.modules["torch"].nn.Module


def tensors_in(value, depth=0):
    """Gives the tensors in arguments or outputs, in their order."""
    tensor = tensor_types()
    if isinstance(value, tensor):
        return [value]
    if depth > 6 or isinstance(value, other_types()):
        return []
    if isinstance(value, (list, tuple, set)):
        inner = value
    elif is_cache(value):
        return []
    elif hasattr(value, "values") and hasattr(value, "keys"):
        inner = [each for key, each in value.items() if key != CACHE]
    else:
        attributes = getattr(value, "__dict__", None)
        inner = list(attributes.values()) if type(attributes) is dict else []
    found: list = []
    for each in inner:
        if isinstance(each, tensor):
            found.append(each)
        elif type(each) not in kinds.ATOMS:
            found += tensors_in(each, depth + 1)
    return found


CACHE = "past_key_values"


def is_cache(value):
    """Return whether a value holds keys and values for later calls: recomputed models have none, and no loss follows from them."""
    return type(value).__name__.endswith("Cache")


def with_bases(outputs):
    """Return outputs, and those that they are views of: where a view is written to, its graph is
    that of its base."""
    found = list(outputs)
    for tensor in outputs:
        if tensor._is_view() and tensor._base.grad_fn is not None:
            found.append(tensor._base)
    return found


def containers(arguments):
    """Gives (container, what it contains) of all lists, dictionaries, sets and objects in arguments."""
    plain = tensor_types(), *other_types()
    found: list = []
    todo, seen = arguments, set()
    while todo:
        value = todo.pop()
        if isinstance(value, plain) or id(value) in seen:
            continue
        seen.add(id(value))
        if len(seen) > MOST_ITEMS:
            raise rootstate.Unrepeatable("the arguments are many")
        if hasattr(value, "__next__"):
            raise rootstate.Unrepeatable("an argument is an iterator")
        if isinstance(value, tuple):
            todo += value
        elif type(value) in (list, set):
            found.append((value, list(value)))
            todo += value
        elif isinstance(value, dict):
            found.append((value, dict(value)))
            todo += value.values()
        elif type(getattr(value, "__dict__", None)) is dict and not callable(value):
            found.append((value.__dict__, dict(value.__dict__)))
            todo += value.__dict__.values()
    return found


def restore(value, inner):
    """Give a list, dictionary or set back what it contained."""
    if isinstance(value, dict):
        if len(value) != len(inner) or any(k not in value or value[k] is not v for k, v in inner.items()):
            value.clear()
            value.update(inner)
    elif len(value) != len(inner) or any(a is not b for a, b in zip(value, inner)):
        value.clear()
        value.extend(inner) if isinstance(value, list) else value.update(inner)


def sequences():
    """Gives how many collectives this process has taken part in, by group; None where there is none."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    groups = getattr(distributed, "_pg_map", None)
    if not groups and (groups is not None or distributed is None):
        return None
    found = []
    for group in list(groups or distributed._world.pg_map):
        try:
            found.append(group._get_sequence_number_for_group())
        except Exception:
            found.append(None)
    return found
