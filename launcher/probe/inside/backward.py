# What the job's loop backpropagates in its first optimizer step: whether the mean over a
# micro batch was divided by the number of micro batches. The nodes of the graph above the loss
# function show the divisor. Where that is not certain, nothing is reported.
import math

from . import batches as batches_part, huggingface, imports, loss, losscalls, memory, process, samples


MEAN, SUM = 1, 2  # PyTorch's numbers of reductions
ROWS = 3  # a sum over what has an entry for each sample, such as a loss without a reduction
SAME = ("ToCopyBackward", "CloneBackward", "AliasBackward", "ViewBackward", "SqueezeBackward", "NegBackward")
DEPTH = 200  # nodes between the loss and its functions
MOST = 4096  # passes before a step

state: dict = {"passes": []}


def arm(torch):
    """Listens to backward passes until the first steps are over."""
    plain = torch.Tensor.backward

    def backward(self, *args, **kwargs):
        see(self, args, kwargs)
        plain(self, *args, **kwargs)
        samples.after()

    mine = imports.like(plain, backward)
    torch.Tensor.backward = mine
    state["undo"] = lambda: setattr(torch.Tensor, "backward", plain) if torch.Tensor.backward is mine else None


def leave():
    undo = state.pop("undo", None)
    if undo:
        undo()


@process.guarded
def see(tensor, args, kwargs):
    if not process.here():
        return
    if len(state["passes"]) == MOST:  # what steps is no optimizer of PyTorch
        leave()
        return
    memory.passes()
    strange = bool(args or kwargs) and (len(args) != 1 or args[0] is not None)
    samples.backward(tensor, strange)
    found = Pass(tensor, strange)
    state["passes"].append(found)
    for value, target in found.ignoring:
        batches = batches_part.state.get("batches")
        if batches is not None:
            batches.ignores(value, target)
    found.ignoring = []
    if len(state["passes"]) == 1:
        losscalls.computed()
    if len(state["passes"]) == 1 and found.factor == 1 and found.divided and found.reduction == MEAN:
        say("kept", "the loss is a mean that is divided by the accumulation, which is 1")


def step(calls, each, optimizers):
    """Runs before the first optimizer step, after so many calls of the root, and so many for
    each backward pass."""
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
        withdraw()
        return
    n, whole = len(passes), abs(one.factor * len(passes) - 1) < 1e-6
    if one.reduction == MEAN and whole and (n > 1 or one.divided):
        say("kept", "the loss is a mean, and each of %d micro batches is divided by %d" % (n, n))
    elif n > 1 and process.orders().get("batch") and one.factor == 1 and one.reduction == MEAN and not one.scaled:
        say("wrong", "the loss is a mean over a micro batch, and is not divided by their number")
    elif one.reduction == SUM and whole and (n > 1 or one.divided):
        say("wrong", "the loss is a sum over the samples, and is divided by the accumulation")
    elif one.reduction in (SUM, ROWS) and abs(one.factor * n * samples.state["rows"] - 1) < 1e-6:
        say("kept", "the loss is a sum over the samples, divided by the samples of a step")
    elif one.reduction == SUM and one.factor == 1 and not one.scaled:
        say("kept", "the loss is a sum over the samples")
    else:
        withdraw()


def say(word, reason):
    if not huggingface.trainers:
        loss.scale(word, reason)


def withdraw():
    if huggingface.trainers:
        return
    loss.say(scale="", **({} if loss.known().get("uniform") == "no" else {"reason": ""}))
    if process.orders().get("batch") and loss.known().get("rows") != "no":
        loss.say(rows="no", rows_reason="what a step backpropagates is not seen to be divided by its micro batches")


class Pass:
    """One backward pass: what the loss was multiplied by, and what the loss function does."""

    def __init__(self, tensor, strange):
        self.factor, self.divided, self.scaled, self.strange, self.ignoring = 1.0, False, False, strange or tensor.numel() != 1, []
        self.left = DEPTH
        node = tensor.grad_fn
        while node is not None:
            value = scalar(node)
            if value is None:
                if not node.name().startswith(SAME):
                    break
            elif is_scale(node, value):
                self.scaled = True
            else:
                self.factor, self.divided = self.factor * value, True
            node = node.next_functions[0][0]
        kinds = set() if node is None else self.kinds(node)
        self.reduction = kinds.pop() if len(kinds) == 1 else None

    def kinds(self, node, divided=False):
        """Return the reductions of the loss functions that a sum is made of; {None} where one
        is not known, as where samples are compared with each other afterwards. A sum that is
        divided by the samples is a mean."""
        self.left -= 1
        name = node.name()
        if self.left < 0:
            return {None}
        if hasattr(node, "_saved_reduction"):
            ignored, target = getattr(node, "_saved_ignore_index", None), getattr(node, "_saved_target", None)
            if ignored is not None and target is not None:
                self.ignoring.append((signed(ignored), target))
            return {MEAN if divided and node._saved_reduction == SUM else node._saved_reduction if node._saved_reduction in (MEAN, SUM) else None}
        if name.startswith("MeanBackward"):
            return {MEAN}
        if name.startswith("SumBackward0"):
            sizes = getattr(node, "_saved_self_sym_sizes", None) or getattr(node, "_saved_self_sizes", ())
            rows = samples.state["rows"]
            return {None if not rows or not sizes or sizes[0] != rows else MEAN if divided else ROWS}
        if scalar(node) is not None or name.startswith(SAME):
            divided = divided or abs((scalar(node) or 0) * samples.state["rows"] - 1) < 1e-6
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
    other = getattr(node, "_saved_other", None)
    if other is None or hasattr(other, "dim") and other.dim() != 0:
        return None
    value = float(other)
    if name.startswith("DivBackward"):
        return 1 / value if value else None
    return value


def is_scale(node, value):
    """Return whether a number is that of a GradScaler: a power of two, on the device."""
    device = getattr(getattr(node, "_saved_other", None), "device", None)
    return device is not None and device.type != "cpu" and value >= 1 and math.log2(value).is_integer()


def signed(value):
    """PyTorch gives the number of an ignored label without its sign."""
    return value - (1 << 64) if value >= 1 << 63 else value
