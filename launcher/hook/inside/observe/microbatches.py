# The job's micro batches in the first steps: the number of rows of each, its tensors, and how many
# calls of the root come before each backward pass. The root's outputs are marked in the graph, so
# that lossgraph.py knows where the loss begins.
import sys
import weakref

from ..base import process
from ..model import rootcalls, values
from . import lossgraph

state: dict = {"rows": 0, "loader": False, "root": None, "module": None, "drawn": [], "calls": 0, "each": []}


@process.guarded
def drawn(batch):
    """Runs after a DataLoader has given a batch."""
    if not process.here():
        return
    found = values.tensors(batch)
    state.update(loader=True, rows=size(found), drawn=[weakref.ref(t) for t in found])


def given():
    """Return the addresses of the latest batch's tensors."""
    return {t.data_ptr() for t in (each() for each in state["drawn"]) if t is not None}


def size(found):
    """Return the number of rows that all tensors have, 0 where they differ."""
    sizes = {t.shape[0] for t in found if t.dim()}
    return sizes.pop() if len(sizes) == 1 else 0


class Root:
    """Listens to the root's calls."""

    @process.guarded
    def begin(self, args, kwargs):
        if not state["loader"]:  # the root's arguments are the batch
            largest = max([t for t in values.tensors((args, kwargs)) if t.dim()], key=lambda t: t.numel(), default=None)
            state["rows"] = 0 if largest is None else largest.shape[0]

    @process.guarded
    def end(self, output=None):
        torch = sys.modules["torch"]
        if state["module"]().training and torch.is_grad_enabled():
            state["calls"] += 1
        for tensor in values.tensors(output):
            lossgraph.mark(tensor)


def first(root, args, kwargs):
    """Begins with the root's first call, and gives what listens to its calls."""
    state.update(root=Root(), module=weakref.ref(root))
    state["root"].begin(args, kwargs)
    return state["root"]


def backward():
    """Runs before a backward pass."""
    state["each"].append(state["calls"])
    state["calls"] = 0


def step():
    """Runs before an optimizer step. Returns how often the root was called for each backward pass."""
    each, state["each"] = state["each"], []
    return each


def leave():
    """Ends with the first optimizer steps."""
    root = state["root"]
    state.update(root=None, drawn=[], each=[])
    if root is not None:
        rootcalls.leave(root)
