# Whether all batches had one shape and no padding: then a smaller micro batch weighs every
# sample as the whole batch did. Shapes are compared at each call of the root. What is in masks and
# labels is read only where gpurun has changed the batch, or by question() once the process ends: in
# host memory, and on a device in the first steps, since it would have to be waited for. Once it is
# "no", nothing is looked at any more.
import os
import sys
import time
import weakref

from ..base import process, wrapping
from ..model import rootcalls, values
from . import loss


LARGE = 1 << 20  # elements of a mask or of labels: larger ones are not looked at
LOOKS = 4  # calls of which also what is on a device is looked at
WAITING = 64  # masks and labels that were drawn before the call that they are for
CLOSELY = 100  # calls until which the contents of every batch are looked at
PAUSE = 0.05  # seconds from then on between two that are

state: dict = {}


class Batches:
    """Listens to the root's calls, and keeps batches until they are trained with."""

    equal = True

    def __init__(self, torch):
        self.torch, self.enabled, self.root = torch, torch.is_grad_enabled, None
        self.drawn, self.shapes, self.counted, self.calls, self.ignored, self.rows = [], {}, {}, 0, {-100}, 0
        self.due, self.pid = 0.0, os.getpid()
        self.reads = bool(process.orders().get("batch"))
        self.ignoring: list = []  # weakly: of the latest batch what the loss was given to ignore some of

    def begin(self, args, kwargs):
        root = self.root()
        if root is None or not root.training or not self.enabled():
            del self.drawn[:]
            return
        self.calls += 1
        if self.calls > LOOKS and not self.drawn and rootcalls.have_shapes(self.shapes, args, kwargs):
            return
        look(self, args, kwargs)

    def look(self, args, kwargs):
        given: dict = dict(enumerate(args))
        given.update(kwargs)
        why = self.unlike(given, "", self.shapes, 0)
        found, drawn, self.drawn = leaves(given, ""), self.drawn, []
        if self.calls == 1:
            self.rows = next((len(tensor) for _, tensor in found if tensor.dim() > 1), 0)
        if why:
            self.no(why)
        elif self.reads:
            self.read([(name, t) for name, t in found if self.calls <= LOOKS or t.device.type == "cpu"] + drawn)
        elif self.calls == 1 and not any(map(can_be_padded, found + drawn)):
            loss.say(uniform="yes")

    def read(self, found):
        """Reads what may be padded."""
        why = next((why for why in (self.padded(name, tensor) for name, tensor in found) if why), "")
        if why:
            self.no(why)
        elif self.calls == 1 or not self.reads:
            loss.say(uniform="yes")

    def unlike(self, value, name, known, depth):
        """Return the tensor whose shape differs from the first call, or from other tensors in this call."""
        shape = getattr(value, "shape", None)
        if shape is not None:
            if getattr(value, "is_nested", False) is True:
                return "the rows of %s are of several lengths" % name
            if known.setdefault(name, shape) != shape:
                return "batches are of several shapes: %s %s, then %s" % (name, size(known[name]), size(shape))
            return ""
        items = value.items() if hasattr(value, "items") else enumerate(value) if isinstance(value, (list, tuple)) else ()
        if depth > 3:
            return ""
        if depth and isinstance(value, list) and known.setdefault(str(name) + " length", len(value)) != len(value):
            return "batches are of several lengths: %s" % name
        for key, each in list(items)[:64]:
            if isinstance(value, list) and hasattr(each, "items"):
                key = "row"  # one dictionary a row, as detectors are given
            why = self.unlike(each, key if depth == 0 else "%s.%s" % (name, key), known, depth + 1)
            if why:
                return why
        return ""

    def padded(self, name, tensor):
        """Return whether some rows of a mask or of labels count more than others."""
        torch, last = self.torch, str(name).rpartition(".")[2]
        if not can_be_padded((name, tensor)) or tensor.numel() > LARGE:
            return ""
        if "mask" in last:
            if tensor.dim() == 2 and not bool(tensor.all()):
                return "the batches are padded (%s)" % last
            return ""
        if tensor.dtype is not torch.int64:
            return ""
        for value in self.ignored:
            if value != -100 or "label" in last or last.isdigit() or "target" in last:
                ignored = tensor == value
                why = self.counts((name, value), ignored.flatten(1).sum(1) if bool(ignored.any()) else None)
                if why:
                    return why
        return ""

    def counts(self, name, rows):
        """Return whether the rows have several numbers of labels that the loss ignores."""
        counts = {0} if rows is None else set(rows.tolist())
        if len(counts) > 1 or self.counted.setdefault(name, counts) != counts:
            return "the batches are padded (the loss ignores labels of %s)" % name[1]
        return ""

    def ignores(self, value, target):
        """Notes labels that the loss ignores, in the first steps."""
        self.ignored.add(value)
        if self.reads:
            self.ignores_of(value, target)
        else:
            self.ignoring = [(value, weakref.ref(target))]

    def ignores_of(self, value, target):
        if target.numel() > LARGE:
            return
        rows = self.rows if self.rows and target.numel() % self.rows == 0 else 1
        ignored = (target == value).reshape(rows, -1).sum(1)
        why = self.counts(("target", value), ignored)
        if not why and rows == 1 and int(ignored):
            why = "the batches are padded (the loss ignores labels of %s)" % value
        if why:
            self.no(why)

    def no(self, why):
        """Ends the observation: what was seen stays true."""
        leave()
        loss.no(why)


def can_be_padded(named):
    """Return whether a tensor may be a mask, or labels."""
    tensor = named[1]
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dim() > 1


def size(shape):
    return "×".join(str(int(n)) for n in shape) or "1"


def leaves(value, name):
    """Return the tensors in a batch, with their names."""
    plain = sys.modules["torch"].strided
    return [(".".join(map(str, (name, *path))), t) for path, t in values.named(value) if t.layout is plain and not getattr(t, "is_nested", False)]


@process.guarded
def look(batches, args, kwargs):
    batches.look(args, kwargs)


def first(root, args, kwargs):
    """Begins with the root's first call, and gives the listener."""
    batches = state["batches"] = Batches(sys.modules["torch"])
    batches.root = weakref.ref(root)
    batches.begin(args, kwargs)
    return batches


def quiet():
    """Return whether the next calls need not be looked at."""
    return "batches" not in state or not state["batches"].reads


def question(args, kwargs):
    """Return what asks the process that ends whether the batch of its latest call is padded, None where that is known."""
    batches = state.get("batches")
    if batches is None or batches.reads or loss.known().get("uniform"):
        return None
    targets = [(value, ref()) for value, ref in batches.ignoring]

    def ask():
        batches.read(leaves(dict(enumerate(args), **kwargs), ""))
        for value, target in targets:
            if target is not None:
                batches.ignores_of(value, target)

    return ask


def follow():
    """Keeps masks and labels that DataLoaders give until the next call of the root."""
    if "batches" not in state or not state["batches"].reads:
        return
    def __next__(own, self):
        batch = own(self)
        if "batches" in state:
            keep(batch)
        return batch

    state["undo"] = wrapping.replace(sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter, "__next__", __next__)


@process.guarded
def keep(batch):
    batches, now = state["batches"], time.monotonic()
    if len(batches.drawn) < WAITING and batches.pid == os.getpid() and (batches.calls < CLOSELY or now >= batches.due):
        batches.due = now + PAUSE
        batches.drawn += [(name, t) for name, t in leaves(batch, "batch") if t.dim() > 1 and t.device.type == "cpu" and not t.is_floating_point()]


def leave():
    batches = state.pop("batches", None)
    if batches is not None:
        rootcalls.leave(batches)
    undo = state.pop("undo", None)
    if undo:
        undo()
