# What the job's loop backpropagates in its first optimizer steps: whether the mean over a micro
# batch was divided by the number of micro batches, and whether the loss selects among the samples, or
# compares them (lossgraph.py). The nodes of the graph show both: nothing is computed.
# Where the scale is not certain, nothing is reported.
import math
import os
import sys

from ..base import process, ranout, session, wall, wrapping
from ..model import listed, rootcalls
from . import batches as batches_part, huggingface, loss, lossgraph, memory, microbatches

MEAN, SUM = lossgraph.MEAN, lossgraph.SUM
ROWS = 3  # a sum over what has an entry for each sample, such as a loss without a reduction
SAME = ("ToCopyBackward", "CloneBackward", "AliasBackward", "ViewBackward", "SqueezeBackward", "NegBackward")
DEPTH = 200  # nodes between the loss and its functions
MOST = 4096  # passes before a step
READS = 8  # passes whose graph is read

state: dict = {"passes": [], "reads": 0}


def arm(torch):
    """Listens to backward passes until the first steps are over."""
    def backward(own, self, *args, **kwargs):
        see(self, args, kwargs)
        own(self, *args, **kwargs)

    state["undo"] = wrapping.replace(torch.Tensor, "backward", backward)


def leave():
    undo = state.pop("undo", None)
    if undo:
        undo()


@process.guarded
def see(tensor, args, kwargs):
    if not process.here():
        return
    if len(state["passes"]) == MOST or capturing():  # what steps is no optimizer of PyTorch
        leave()
        return
    with process.together():
        looked(tensor, args, kwargs)


def looked(tensor, args, kwargs):
    memory.passes()
    strange = bool(args or kwargs) and (len(args) != 1 or args[0] is not None)
    microbatches.backward()
    found = Pass(tensor, strange)
    state["passes"].append(found)
    batches = batches_part.state.get("batches")
    if batches is not None:
        for value, target in found.ignoring:
            batches.ignores(value, target)
    found.ignoring = []
    if state["reads"] < READS:
        state["reads"] += 1
        samples(found)
    found.node = None
    if len(state["passes"]) == 1:
        for each in session.current.when_backpropagated:
            each()
    if len(state["passes"]) == 1 and found.factor == 1 and found.divided and found.reduction == MEAN:
        say("kept", "the loss is a mean that is divided by the accumulation, which is 1")


def capturing():
    """Return whether a CUDA graph is being recorded: what is read from the device would end it."""
    torch = sys.modules["torch"]
    return rootcalls.is_recorded() or torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def samples(found):
    """Reports a loss that selects among the samples of a micro batch, or compares them."""
    selects = compares = ""
    if found.node is not None and not found.strange:
        selects, compares = lossgraph.read(found.node, microbatches.state["rows"], microbatches.given())
    if selects:
        compares = "%s, in the loss of %s" % (selects, place())
        process.note("refused", {"micro_batch_size": compares, "gradient_accumulation_steps": compares})
    module = microbatches.state["module"]
    if not compares and state["reads"] == 1 and module is not None:
        compares = hooked(module())
    if compares:
        loss.say(rows="no", rows_reason=compares)


def hooked(root):
    """Return which hook may change the gradients of each micro batch, "" for none."""
    why = "a hook may change the gradients of each micro batch (%s)"
    for p in listed.parameters(root):
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            return why % next(name for name, each in root.named_parameters() if each is p)
    for m in listed.modules(root):
        if m._backward_hooks or m.__dict__.get("_backward_pre_hooks"):
            return why % type(m).__name__
    return ""


def place():
    """Return file and line of the job's own code that runs now."""
    skipped = os.path.dirname(sys.modules["torch"].__file__) + os.sep, wall.HERE, "<"
    for frame in ranout.frames_from(sys._getframe(1)):
        name = frame.f_code.co_filename
        if not name.startswith(skipped):
            return "%s:%d" % (os.path.basename(name), frame.f_lineno)
    return "the job"


def step(calls, each, optimizers, made):
    """Runs before the first optimizer step, after so many calls of the root, and so many for
    each backward pass. Made is the number of its micro batches where gpurun has changed that, None where it is not known."""
    passes = state["passes"]
    state["passes"] = []
    if not passes or "decided" in state:
        return
    state["decided"] = True
    one = passes[0]
    alike = all((p.factor, p.reduction, p.scaled, p.strange) == (one.factor, one.reduction, one.scaled, False) for p in passes)
    if len(each) == len(passes) and len(set(each)) == 1 and sum(each) == calls:
        calls = len(passes)  # each micro batch is several calls, as of pairs
    if not alike or len(passes) != calls or optimizers > 1 or one.reduction is None:
        withdraw((made or 1) == 1 or any(p.factor != 1 for p in passes))
        return
    n, whole = len(passes), abs(one.factor * len(passes) - 1) < 1e-6
    if one.reduction == MEAN and whole and (n > 1 or one.divided):
        say("kept", "the loss is a mean, and each of %d micro batches is divided by %d" % (n, n))
    elif n > 1 and process.orders().get("batch") and one.factor == 1 and one.reduction == MEAN and not one.scaled:
        say("wrong", "the loss is a mean over a micro batch, and is not divided by their number")
    elif one.reduction == SUM and whole and (n > 1 or one.divided):
        say("wrong", "the loss is a sum over the samples, and is divided by the accumulation")
    elif one.reduction in (SUM, ROWS) and abs(one.factor * n * microbatches.state["rows"] - 1) < 1e-6:
        say("kept", "the loss is a sum over the samples, divided by the samples of a step")
    elif one.reduction == SUM and one.factor == 1 and not one.scaled:
        say("kept", "the loss is a sum over the samples")
    else:
        withdraw(True)


def say(word, reason):
    if not huggingface.trainers:
        loss.scale(word, reason)


def withdraw(divided):
    """Reports no scale; a wrong one where gpurun has changed the number of micro batches, and what is backpropagated is
    not divided by anything."""
    if huggingface.trainers:
        return
    if not divided:
        say("wrong", "what a step backpropagates is not seen to be divided by its micro batches")
        return
    loss.say(scale="", **({} if loss.known().get("uniform") == "no" else {"reason": ""}))
    if process.orders().get("batch") and loss.known().get("rows") != "no":
        loss.say(rows="no", rows_reason="what a step backpropagates is not seen to be divided by its micro batches")


class Pass:
    """One backward pass: what the loss was multiplied by, and what the loss function does."""

    def __init__(self, tensor, strange):
        self.factor, self.divided, self.scaled, self.strange, self.ignoring = 1.0, False, False, strange or tensor.numel() != 1, []
        self.left, self.node, self.reduction = DEPTH, None, None
        try:
            self.read(tensor)
        except lossgraph.Hooked:
            self.node = None

    def read(self, tensor):
        self.node = self.outer(tensor.grad_fn)
        kinds = set() if self.node is None else self.kinds(self.node)
        self.reduction = kinds.pop() if len(kinds) == 1 else None

    def outer(self, node):
        """Follows the numbers that the whole loss is multiplied by, and returns the node below them."""
        while node is not None and lossgraph.marked(node, 0) is None:
            value = scalar(node)
            if value is None:
                if not node.name().startswith(SAME):
                    break
            elif is_scale(node, value):
                self.scaled = True
            else:
                self.factor, self.divided = self.factor * value, True
            node = node.next_functions[0][0]
        return node

    def kinds(self, node, divided=False):
        """Return the reductions of the loss functions that a sum is made of; {None} where one
        is not known, as where samples are compared with each other afterwards. A sum that is
        divided by the samples is a mean."""
        self.left -= 1
        name = node.name()
        if self.left < 0:
            return {None}
        if hasattr(node, "_saved_reduction"):
            ignored, target = lossgraph.saved(node, "ignore_index"), lossgraph.saved(node, "target")
            if ignored is not None and target is not None:
                self.ignoring.append((lossgraph.signed(ignored), target))
            return {MEAN if divided and node._saved_reduction == SUM else node._saved_reduction if node._saved_reduction in (MEAN, SUM) else None}
        if name.startswith("MeanBackward"):
            return {MEAN}
        if name.startswith("SumBackward0"):
            sizes = getattr(node, "_saved_self_sym_sizes", None) or getattr(node, "_saved_self_sizes", ())
            rows = microbatches.state["rows"]
            return {None if not rows or not sizes or sizes[0] != rows else MEAN if divided else ROWS}
        if scalar(node) is not None or name.startswith(SAME):
            divided = divided or abs((scalar(node) or 0) * microbatches.state["rows"] - 1) < 1e-6
            return self.kinds(node.next_functions[0][0], divided)
        if name.startswith(("AddBackward", "SubBackward", "RsubBackward")):
            found = set()
            for child, _ in node.next_functions:
                found |= self.kinds(child, divided) if child is not None else {None}
            return found
        return {None}


def scalar(node):
    """Return the number that a node multiplies by, None where it is no such node."""
    name, children = node.name(), [child for child, _ in node.next_functions]
    if not name.startswith(("DivBackward", "MulBackward")) or not children or children[0] is None or any(children[1:]):
        return None
    other = lossgraph.saved(node, "other")
    if other is None or hasattr(other, "dim") and other.dim() != 0:
        return None
    value = float(other)
    if name.startswith("DivBackward"):
        return 1 / value if value else None
    return value


def is_scale(node, value):
    """Return whether a number is that of a GradScaler: a power of two, on the device."""
    device = getattr(lossgraph.saved(node, "other"), "device", None)
    return device is not None and device.type != "cpu" and value >= 1 and math.log2(value).is_integer()
