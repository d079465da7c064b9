# The graph of a pass that failed: what follows from which call of the root, whether a repeated
# call gives every leaf its gradient, and how what the graph saved is let go although the job may
# still refer to tensors in it.
import functools
import gc
import itertools
import sys

import torch

from . import places, rootstate


KEY = "gpurun.output"  # in the metadata of nodes: {number of the output: (call, its index)}


class Walk:
    """The nodes below losses, as far as the outputs of calls and below those."""

    def __init__(self, losses, calls):
        self.calls = {id(call): call for call in calls}
        self.nodes, self.inner = set(), set()  # from the losses to the outputs, and those below
        self.used, self.below = {}, []
        self.functions = False  # whether the model's part has functions with a backward pass in Python
        for loss in losses:
            if loss.grad_fn is None:
                raise rootstate.Unrepeatable("a loss is no output of the model")
        self.above_outputs([(loss.grad_fn, loss.output_nr) for loss in losses])

    def above_outputs(self, todo):
        seen = set()
        while todo:
            node, number = todo.pop()
            if node is None or (node, number) in seen:
                continue
            seen.add((node, number))
            self.nodes.add(node)
            call, i = node.metadata.get(KEY, {}).get(number, (None, 0))
            if call is not None:
                self.used.setdefault(id(call), set()).add(i)
                if id(call) not in self.calls:
                    raise rootstate.Unrepeatable("a loss follows from an earlier call of the model")
                self.below.append(node)
                continue
            if hasattr(node, "variable"):
                raise rootstate.Unrepeatable("a loss follows from a parameter otherwise than through the model")
            todo += node.next_functions

    def below_outputs(self, parameters):
        """Go through the model's own part of the graph. Raises where a repeated call could not give
        a leaf its gradient."""
        own = {id(p) for p in parameters}
        for node in nodes_from(self.below):
            if hasattr(node, "variable"):
                if id(node.variable) not in own and is_held(node):
                    raise rootstate.Unrepeatable("the model uses a tensor with a gradient that is no parameter of it")
                continue
            if is_reentrant(node):
                raise rootstate.Unrepeatable("the model uses reentrant checkpointing")
            self.functions = self.functions or isinstance(node, torch.autograd.function.BackwardCFunction)
            if not node.name().startswith("ToCopy"):  # autocast's copies of leaves are those of other graphs, too
                self.inner.add(node)

    def used_calls(self):
        """Return the calls that the losses follow from, in their order."""
        found = [call for call in self.calls.values() if id(call) in self.used]
        if not found:
            raise rootstate.Unrepeatable("the model was not called for this loss")
        return found

    def cut(self, tensors):
        """Detach every tensor that is part of the graph, so that the graph is freed."""
        try:
            tensors = tensors + [places.alive(t) for t in all_tensors()]
        except MemoryError:
            pass
        apart = set()
        mine = [tensor for tensor in tensors if self.holds(tensor, apart)]
        views = {}  # by the id of their base
        for tensor in mine:
            if tensor._is_view():
                views.setdefault(id(tensor._base), []).append(tensor)
        groups = [group for group in views.values() if all(map(is_plain_view, group))]
        for tensor in mine:
            if not tensor._is_view():
                tensor.detach_()
        for group in groups:
            detach(group)
        self.nodes, self.inner, self.below, self.calls = set(), set(), [], {}

    def holds(self, tensor, apart):
        """Return whether a tensor is of this graph, or follows from its outputs; apart has nodes of
        which it is known that they do not."""
        try:
            last, seen = tensor.grad_fn, set()
        except (RuntimeError, ReferenceError):
            return False
        if last in self.inner:
            return True
        for node in nodes_from([last], apart):
            if node in self.nodes:
                return True
            seen.add(node)
        apart |= seen
        return False


def nodes_from(todo, without=()):
    """Yield once each node of the graphs that end in some nodes, but those in without and what only they lead to."""
    todo, seen = list(todo), {None}
    while todo:
        node = todo.pop()
        if node not in seen and node not in without:
            seen.add(node)
            yield node
            todo += [child for child, _ in node.next_functions]


def is_reentrant(node):
    """Return whether a node is of torch.utils.checkpoint with use_reentrant=True, which hides what it computes."""
    return node.name().startswith("CheckpointFunction")


def all_tensors():
    """Return all tensors of this process."""
    tensor, objects = torch.Tensor, gc.get_objects()
    kinds, todo = set(), [tensor]
    while todo:
        kind = todo.pop()
        if kind not in kinds:
            kinds.add(kind)
            todo += type.__subclasses__(kind)
    try:
        return list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))  # the fastest way
    except TypeError:  # a class that has no hash
        return [each for each in objects if issubclass(type(each), tensor)]


def is_held(node):
    """Return whether anything but the graph refers to a leaf, so that its gradient can be read."""
    return sys.getrefcount(node.variable) > unheld()


@functools.lru_cache(maxsize=1)
def unheld():
    """Return the number of references to a leaf that only its graph refers to."""
    with torch.enable_grad():
        end = torch.zeros(1, requires_grad=True).clone()
    return sys.getrefcount(end.grad_fn.next_functions[0][0].variable)


def detach(views):
    """Take the views of one tensor out of its graph: a view looks that of its base up again once
    the base was written to."""
    base = views[0]._base
    if base.grad_fn is not None:
        base.detach_()
    elif base.is_leaf and base.requires_grad:
        return
    with torch.no_grad():
        base.as_strided((0,), (1,)).zero_()
    for view in views:
        view.grad_fn  # noqa: B018 this is where it is looked up


SEVERAL = ("Unbind", "Split", "UnsafeSplit", "Chunk", "TensorSplit")


def is_plain_view(view):
    """Return whether PyTorch lets a view's graph be made again: not that of one of several views."""
    of = getattr(torch._C._autograd, "_get_creation_meta", None)
    if of is not None:
        return of(view).name == "DEFAULT"
    node, last = view.grad_fn, view._base.grad_fn
    while node is not None and node is not last:
        if node.name().startswith(SEVERAL) or len(node.next_functions) != 1 or not node.name()[-1].isdigit():  # of a custom function
            return False
        node = node.next_functions[0][0]
    return True
