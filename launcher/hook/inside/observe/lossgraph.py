# Which samples a loss is computed from, by the graph that the backward pass is about to use. Only
# the graph's nodes are read: their names, their links, and what they keep. Nothing is computed.
# An operation that is not listed here makes the answer "unknown".
import math
import sys

MARK = "gpurun_rows"  # in a node's metadata, by the number of its result: the dimension that counts the rows, the shape
MOST = 600  # nodes that are read
DEPTH = 150  # nodes between the loss and what it is computed from

# How a value depends on the samples: an entry or more for each; the mean or the sum of all; not at
# all; in a way that is not known; each on others.
ROWS, MEAN, SUM, FIXED, UNKNOWN, NO = "rows", "mean", "sum", "fixed", "unknown", "no"

ELEMENTWISE = {
    "Neg", "Exp", "Expm1", "Log", "Log1P", "Log1p", "Log2", "Log10", "Sqrt", "Rsqrt", "Abs", "Pow", "Relu", "LeakyRelu", "Elu", "Silu", "Gelu",
    "Sigmoid", "Tanh", "LogSigmoid", "Softplus", "Clamp", "ClampMin", "ClampMax", "Hardtanh", "Sin", "Cos", "Erf", "Reciprocal", "Threshold",
    "ToCopy", "Clone", "Alias", "Contiguous", "LiftFresh",
}
LINEAR = {"Neg", "ToCopy", "Clone", "Alias", "Contiguous", "LiftFresh"}
SUMS = {"Add", "Sub", "Rsub"}
PRODUCTS = {"Mul", "Div"}
BINARY = SUMS | PRODUCTS | {"Maximum", "Minimum", "Pow"}
VIEWS = {"View", "UnsafeView", "ReshapeAlias", "Reshape", "Squeeze", "Unsqueeze"}
ALONG = {"Softmax", "LogSoftmax", "Cumsum", "Cumprod", "Logcumsumexp"}  # keep the shape
OVER = {"Sum", "Mean", "Logsumexp", "Norm", "LinalgVectorNorm", "Std", "Var", "Prod"}  # remove dimensions
SELECTING = {"Max", "Min", "Amax", "Amin", "Median", "Nanmedian", "Kthvalue", "Mode", "Topk", "Sort", "Cummax", "Cummin"}
WORDS = {"Amax": "max", "Amin": "min", "Nanmedian": "median", "LinalgVectorNorm": "norm", "LogSoftmax": "log_softmax", "Mm": "a matrix product", "Bmm": "a matrix product", "Cdist": "cdist"}


class Hooked(Exception):
    """Raised where reading the graph would run code of the job."""


class Value:
    """What a result depends on. Shape is None where it is not known; before is then the value that
    it is a view of. Spread: an entry of each sample was repeated as often as there are samples."""

    def __init__(self, kind, shape=None, dim=0, why="", before=None, spread=False, pure=False):
        self.kind, self.shape, self.dim, self.why, self.before, self.spread, self.pure = kind, shape, dim, why, before, spread, pure

    def like(self, **other):
        return Value(**dict(vars(self), **other))


def unknown(why):
    return Value(UNKNOWN, why=why)


def no(why):
    return Value(NO, why=why)


def saved(node, name):
    """Return what a node keeps by this name, None for nothing. A hook on a saved tensor, such as that of a
    checkpoint, would run the job's code: it is not called."""
    name = "_saved_" + name
    if not hasattr(type(node), "_raw" + name):
        return getattr(node, name, None)
    if sys.getprofile() is not None:
        raise Hooked("the job is profiled")
    sys.setprofile(refuse)
    try:
        return getattr(node, name)
    finally:
        sys.setprofile(None)


def refuse(frame, event, arg):
    if event == "call":
        raise Hooked("the job has hooks on what the backward pass needs")


def mark(tensor, dim):
    """Notes in the graph that a tensor is the root's output. The graph frees the note with itself."""
    node = tensor.grad_fn
    if node is not None:
        node.metadata.setdefault(MARK, {})[tensor.output_nr] = dim, tuple(tensor.shape)


def name_of(node):
    return node.name().rpartition("Backward")[0] or node.name()


def signed(n):
    """PyTorch gives some numbers without their sign."""
    return n - (1 << 64) if n >= 1 << 63 else n


def marked(node, number):
    """Return what was noted of a node's result, None for nothing."""
    return node.metadata.get(MARK, {}).get(number) if hasattr(node, "metadata") else None


def number(value):
    """Return a number that an operation was given as one, None for a tensor that was computed."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if value.dim() or value.device.type != "cpu" or str(value.dtype) not in ("torch.float64", "torch.int64"):
        return None
    return float(value)


def words(name):
    return WORDS.get(name, name.lower())


class Graph:
    """Reads the graph of one loss. Given has the addresses of the loader's tensors."""

    def __init__(self, rows, given):
        self.rows, self.addresses = rows, given
        self.known, self.left, self.depth = {}, MOST, 0
        self.numbers, self.names, self.refused = [], [], ""

    def given(self, tensor):
        """Return whether a tensor is the loader's."""
        return tensor.data_ptr() in self.addresses

    def read(self, node):
        """Return (word, reason): "yes", "no", "unknown" or "refused"."""
        if self.rows < 2:
            return "unknown", "a batch of one row cannot be divided" if self.rows else "the tensors of a batch have several lengths"
        found = marked(node, 0)
        if found is not None and found[1] == ():
            return self.of_the_root(node)
        found = self.at(node, 0)
        if self.refused:
            return "refused", self.refused
        if found.kind in (MEAN, SUM):
            return "yes", ""
        if found.kind in (NO, UNKNOWN):
            return found.kind, found.why
        return "unknown", "no mean or sum over the samples was seen"

    def of_the_root(self, node):
        """The root itself computes the loss: whether it does so by rows is its forward's matter, but
        for a selection among the samples."""
        self.inside = True
        self.at(node, 0, True)
        return ("refused", self.refused) if self.refused else ("yes", "")

    inside = False

    # What nodes keep.

    def sizes(self, node):
        """Return the shape of what a node was given, where the node keeps it."""
        found = saved(node, "self_sym_sizes")
        found = saved(node, "self_sizes") if found is None else found
        return None if found is None else tuple(int(n) for n in found)

    def shape(self, node, number):
        """Return the shape of a node's result: PyTorch 2.1 and later keep it."""
        kept = getattr(node, "_input_metadata", None)
        return tuple(int(n) for n in kept[number].shape) if kept is not None and number < len(kept) else None

    def note(self, name, value):
        self.numbers.append((name, value))

    # The walk.

    def at(self, node, number, outer=False):
        """Return the value of a node's result."""
        if node is None:
            return Value(FIXED)
        found = None if outer else marked(node, number)
        if found is not None:
            return Value(ROWS, found[1], found[0], pure=True) if found[0] >= 0 else unknown("an output of the model has no row for each sample")
        key = id(node), number
        if key in self.known:
            return self.known[key][0]
        self.left -= 1
        if self.left < 0 or self.depth > DEPTH:
            return unknown("the loss is computed in too many operations")
        name = name_of(node)
        if "AccumulateGrad" in name:
            return Value(FIXED)
        self.depth += 1
        self.names.append(name)
        try:
            value = self.of(node, name, number)
        finally:
            self.depth -= 1
        shape = self.shape(node, number)
        if shape is not None and value.kind == ROWS:
            value = self.resolved(value, shape)
        self.known[key] = value, node  # the node is kept, so that its id stays its
        return value

    def children(self, node):
        return [self.at(child, number) for child, number in node.next_functions]

    def of(self, node, name, number):
        if self.inside and any(child is not None and "AccumulateGrad" in child.name() for child, _ in node.next_functions):
            return unknown("the model")  # its own matter
        if hasattr(node, "_saved_reduction"):
            return self.loss_function(node, name)
        all_of = self.children(node)
        one = all_of[0] if all_of else unknown("")
        if name in SELECTING or name in ("MaskedSelect", "Index", "IndexSelect"):
            return self.selection(node, name, number, one)
        if name == "Add" and self.is_smoothing(*[child for child, _ in node.next_functions]):
            return one
        worst = next((v for kind in (NO, UNKNOWN) for v in all_of if v.kind == kind), None)
        if worst is not None:
            return worst
        if all(v.kind == FIXED for v in all_of):
            return Value(FIXED, self.shape(node, number))
        if name in BINARY and len(all_of) == 2:
            return self.binary(node, name, all_of)
        if name in ELEMENTWISE or name in BINARY:
            return self.elementwise(node, name, one)
        if name in VIEWS or name in ("Transpose", "T", "Permute", "Expand", "Slice", "Select"):
            return self.view(node, name, number, one)
        if name in ALONG or name in OVER:
            return self.reduced(node, name, number, one)
        if name in ("Mm", "Bmm", "Cdist", "Addmm"):
            return self.product(node, name, number, all_of)
        if name == "Gather" and one.kind == ROWS:
            one = self.known_shape(node, one)
            if one.shape is None or self.dims(node, one)[0] == one.dim:
                return self.indexed(node, name, number, one, one.shape, one.dim) if one.shape is not None else unknown("the shapes of the loss are not known")
            return Value(ROWS, self.shape(node, number) or tuple(saved(node, "index").shape), one.dim)
        if name in ("MaskedFill", "Where", "IndexPut"):
            return unknown("%s takes a mask" % words(name))
        return unknown("%s is not known to compute each sample's part by itself" % name)

    def resolved(self, value, shape):
        """Return a value whose shape turns out to be this."""
        shape = tuple(int(n) for n in shape)
        if value.shape is None:
            if value.before is None:
                return value.like(shape=shape)
            return self.viewed(value.before, shape).like(pure=value.pure)
        if value.shape == shape or len(value.shape) == len(shape) and math.prod(shape) == math.prod(value.shape):
            return value.like(shape=shape)
        grown = len(shape) - len(value.shape)
        apart = [n for i, n in enumerate(shape) if i != value.dim + grown and (i < grown or n != value.shape[i - grown])]
        if any(n % self.rows == 0 for n in apart):
            return no("an operation compares each sample with all others, by shapes %s and %s" % (list(value.shape), list(shape)))
        return value.like(shape=shape, dim=value.dim + grown)

    def known_shape(self, node, value):
        """Return the value that a node is given, with its shape where that can be known."""
        shape = self.sizes(node)
        for name in () if shape is not None or value.kind != ROWS or value.shape is not None else ("self", "result"):
            kept = saved(node, name)
            if kept is not None:
                shape = shape or tuple(kept.shape)
        return self.resolved(value, shape) if shape is not None and value.kind == ROWS else value

    def dims(self, node, value):
        """Return the dimensions that a node works on, all where it names none; counted from the front."""
        found, rank = saved(node, "dim"), len(value.shape)
        if found is None or found == ():
            return list(range(rank))
        return [signed(d) % max(rank, 1) for d in (found if isinstance(found, tuple) else (found,))]

    # Kinds of operations.

    def elementwise(self, node, name, one):
        for each in ("exponent", "min", "max", "beta", "alpha", "other"):
            value = saved(node, each)
            if value is not None:
                known = number(value)
                if known is None and name in PRODUCTS:
                    return self.weighted(name, one, value)
                self.note(each, known)
        if one.kind == ROWS:
            return one if name in LINEAR else one.like(pure=False)
        if name in LINEAR or name in PRODUCTS or name in SUMS:
            return one
        return no("%s is computed of the %s over the samples" % (words(name), one.kind))

    def binary(self, node, name, both):
        (a, _), (b, _) = node.next_functions
        if a is None or b is None:
            return self.with_given(node, name, both[0] if b is None else both[1], "other" if b is None else "self")
        one, other = both
        kinds = {one.kind, other.kind}
        whole = kinds & {MEAN, SUM}
        if whole:
            if name in SUMS and kinds <= {MEAN, FIXED} or kinds == {SUM} and name in SUMS:
                return one if one.kind != FIXED else other
            if name in PRODUCTS and FIXED in kinds:
                return unknown("the loss is multiplied by a parameter")
            if ROWS in kinds:
                return no("each sample's part is computed with the %s over all samples (%s)" % (next(iter(whole)), words(name)))
            if name in SUMS:
                return unknown("a mean and a sum over the samples are added")
            return no("%s is computed of the %s over the samples" % (words(name), next(iter(whole))))
        if FIXED in kinds:
            return (one if one.kind == ROWS else other).like(pure=False)
        return self.together(one, other)

    def together(self, one, other):
        """Return the value of two that have rows."""
        if one.shape is None or other.shape is None:
            return (one if one.shape is not None else other).like(pure=False, shape=one.shape or other.shape)
        rank = max(len(one.shape), len(other.shape))
        places = {v.dim + rank - len(v.shape) for v in (one, other)}
        if len(places) > 1:
            return no("each sample is compared with all others, by shapes %s and %s" % (list(one.shape), list(other.shape)))
        larger = one if math.prod(one.shape) >= math.prod(other.shape) else other
        return larger.like(spread=one.spread and other.spread, pure=False, dim=larger.dim)

    def with_given(self, node, name, one, other):
        """The other operand needs no gradient: a number, or a tensor of the job's."""
        if name not in PRODUCTS:
            alpha = saved(node, "alpha")
            if alpha is not None:
                self.note("alpha", number(alpha))
            if one.kind in (MEAN, SUM):
                return self.elementwise(node, name, one)
            return one.like(pure=False) if one.shape is not None or one.before is not None else unknown("the shapes of the loss are not known")
        value = saved(node, other)
        if value is None:
            return unknown("a number in the loss cannot be read")
        known = number(value)
        if known is None:
            return self.weighted(name, one, value)
        self.note(name, known)
        return one.like(pure=False)

    def weighted(self, name, one, tensor):
        if tensor.dim() and one.kind == ROWS and self.given(tensor):
            return one.like(pure=False)
        if tensor.dim() == 0:
            return unknown("the loss is %s a tensor that may differ from one micro batch to the next" % ("divided by" if name == "Div" else "multiplied by"))
        return unknown("the loss is weighted by a tensor that is not seen to come from the loader")

    def is_smoothing(self, a=None, b=None):
        """Return whether two parts are those of a cross entropy with label smoothing."""
        loss = a.next_functions[0][0] if a is not None and name_of(a) == "Mul" else None
        if loss is None or not name_of(loss).startswith("NllLoss"):
            return False
        scores = loss.next_functions[0][0]
        for _ in range(10):
            if b is scores:
                return True
            if b is None or name_of(b) not in ("Mul", "Mean", "Sum", "Div", "MaskedSelect", "MaskedFill", "IndexPut", "Neg"):
                return False
            b = b.next_functions[0][0]
        return False

    def view(self, node, name, number, one):
        if one.kind != ROWS:
            return one
        shape, one = self.shape(node, number), self.known_shape(node, one)
        if name in VIEWS:
            if shape is None and name == "Unsqueeze" and one.shape is not None:
                dim = saved(node, "dim")
                dim = signed(dim) % (len(one.shape) + 1)
                shape = one.shape[:dim] + (1,) + one.shape[dim:]
            if shape is None or one.shape is None:
                return Value(ROWS, None, one.dim, before=one, pure=one.pure) if one.shape is not None else unknown("the shapes of the loss are not known")
            return self.viewed(one, shape).like(pure=one.pure)
        if one.shape is None:
            return unknown("the shapes of the loss are not known")
        rank = len(one.shape)
        if name in ("Transpose", "T", "Permute"):
            order = list(range(rank))
            if name == "Permute":
                order = [signed(d) % rank for d in saved(node, "dims")]
            else:
                i, j = (0, rank - 1) if name == "T" else [signed(d) % rank for d in (saved(node, "dim0"), saved(node, "dim1"))]
                order[i], order[j] = order[j], order[i]
            return one.like(shape=tuple(one.shape[d] for d in order), dim=order.index(one.dim))
        if name == "Expand":
            if shape is None:
                return one.like(shape=None, spread=True)
            grown = len(shape) - rank
            spread = any(n != 1 and n % self.rows == 0 and i != one.dim + grown and (i < grown or one.shape[i - grown] == 1) for i, n in enumerate(shape))
            return one.like(shape=shape, dim=one.dim + grown, spread=spread)
        dim = self.dims(node, one)[0]
        if name == "Select":
            if dim == one.dim:
                return no("the loss is computed of single samples of a micro batch")
            return one.like(shape=one.shape[:dim] + one.shape[dim + 1:], dim=one.dim - (dim < one.dim))
        start, end = [signed(n) for n in (saved(node, "start") or 0, saved(node, "end"))]
        if dim != one.dim:
            n = len(range(*slice(start, end, signed(saved(node, "step") or 1)).indices(one.shape[dim])))
            return one.like(shape=one.shape[:dim] + (n,) + one.shape[dim + 1:])
        return one if start == 0 and (end >= one.shape[dim]) else unknown("a part of the samples is taken apart from the others")

    def viewed(self, one, shape):
        """Return rows in another shape: those of one sample stay together where nothing is before them."""
        if math.prod(one.shape[:one.dim]) == 1:
            for dim, n in enumerate(shape):
                if n != 1 or self.rows == 1:
                    return one.like(shape=shape, dim=dim, before=None) if n % self.rows == 0 else unknown("a view joins entries of several samples")
        if len(shape) > one.dim and shape[:one.dim + 1] == one.shape[:one.dim + 1]:
            return one.like(shape=shape, before=None)
        return unknown("a view joins entries of several samples")

    def reduced(self, node, name, number, one):
        if one.kind in (MEAN, SUM):
            return one if name in ("Sum", "Mean") else no("%s is computed of the %s over the samples" % (words(name), one.kind))
        one = self.known_shape(node, one)
        if one.kind != ROWS:
            return one
        if one.shape is None:
            return unknown("the shapes of the loss are not known")
        if one.spread:
            return no("each sample is compared with the targets of all others")
        dims = self.dims(node, one)
        if name in ALONG or name in OVER and name not in ("Sum", "Mean"):
            if one.dim in dims:
                return no("%s is computed over the samples of a micro batch" % words(name))
        if name in ALONG:
            return one.like(pure=False)
        kept = [d for d in range(len(one.shape)) if d not in dims]
        if one.dim in dims:
            return Value(MEAN if name == "Mean" else SUM)
        if saved(node, "keepdim"):
            return one.like(shape=tuple(1 if d in dims else n for d, n in enumerate(one.shape)), pure=False)
        return one.like(shape=tuple(one.shape[d] for d in kept), dim=kept.index(one.dim), pure=False)

    def product(self, node, name, number, all_of):
        one, other = all_of[-2:]
        if name == "Cdist" or name == "Mm" or name == "Addmm":
            if one.kind == other.kind == ROWS:
                return no("%s compares the samples of a micro batch with each other" % words(name))
            if other.kind == FIXED and node.next_functions[-1][0] is not None and one.kind == ROWS:
                shape = self.shape(node, number)
                return Value(ROWS, shape, one.dim)
        elif one.kind == other.kind == ROWS and one.dim == other.dim == 0 and one.shape and other.shape and one.shape[0] == other.shape[0] != 1:
            return Value(ROWS, self.shape(node, number), 0)
        elif one.kind == other.kind == ROWS and (one.dim or other.dim):
            return no("%s compares the samples of a micro batch with each other" % words(name))
        return unknown("%s is not known to compute each sample's part by itself" % words(name))

    def loss_function(self, node, name):
        all_of = self.children(node)
        worst = next((v for kind in (NO, UNKNOWN) for v in all_of if v.kind == kind), None)
        if worst is not None:
            return worst
        one = next((v for v in all_of if v.kind != FIXED), None)
        if one is None:
            return Value(FIXED)
        if one.kind != ROWS:
            return no("%s is computed of the %s over the samples" % (words(name), one.kind))
        for each in ("beta", "delta", "margin", "p"):
            value = saved(node, each)
            if isinstance(value, (int, float)):
                self.note(each, float(value))
        one, target = self.known_shape(node, one), saved(node, "target")
        if one.kind != ROWS:
            return one
        if one.spread and len(all_of) > 1 and node.next_functions[1][0] is None or one.spread and len(all_of) == 1:
            return no("the targets are repeated for every sample, by shape %s" % list(one.shape or ()))
        reduction, weight = saved(node, "reduction"), saved(node, "weight")
        if name.startswith(("NllLoss", "MultiMargin")) and one.shape is not None and one.dim == (0 if len(one.shape) == 1 else 1):
            return no("the scores of all samples are compared as one list")
        if weight is not None and reduction == MEAN_OF and name.startswith("NllLoss"):
            return no("the mean is weighted by the classes of the micro batch")
        if weight is not None and not name.startswith("NllLoss") and weight.dim() and weight.shape[0] == self.rows and not self.given(weight):
            return unknown("the loss is weighted by a tensor that is not seen to come from the loader")
        if reduction in (MEAN_OF, SUM_OF):
            return Value(MEAN if reduction == MEAN_OF else SUM)
        classes = name.startswith("NllLoss") and target is not None
        return Value(ROWS, tuple(target.shape) if classes else one.shape, 0 if classes else one.dim)

    def selection(self, node, name, number, one):
        """Takes some entries, or the largest."""
        one = self.known_shape(node, one)
        sizes = one.shape if one.shape is not None else self.sizes(node)
        if one.kind in (FIXED, MEAN, SUM):
            return one if one.kind == FIXED else no("%s is computed of the %s over the samples" % (words(name), one.kind))
        if one.kind != ROWS and (not sizes or sizes[0] % self.rows):
            return one
        dim = one.dim if one.kind == ROWS else 0
        if sizes is None:
            return unknown("the shapes of the loss are not known")
        if name in SELECTING:
            dims = self.dims(node, Value(ROWS, sizes))
            if dim in dims and (one.kind == ROWS or len(sizes) == 1):
                return self.refuse("%s selects among the samples of a micro batch" % words(name))
            if one.kind != ROWS or dim in dims:
                return one if one.kind != ROWS else unknown("")
            return self.kept(node, name, number, one, dims)
        return self.indexed(node, name, number, one, sizes, dim)

    def kept(self, node, name, number, one, dims):
        if name in ("Sort", "Cummax", "Cummin"):
            return one.like(pure=False)
        shape = self.shape(node, number)
        if shape is None and name == "Topk":
            shape = tuple(saved(node, "indices").shape)
        if shape is None:
            keep = saved(node, "keepdim")
            shape = tuple(1 if d in dims else n for d, n in enumerate(one.shape) if keep or d not in dims)
        dim = one.dim if len(shape) == len(one.shape) else one.dim - sum(d < one.dim for d in dims)
        return Value(ROWS, shape, dim)

    def indexed(self, node, name, number, one, sizes, dim):
        if name == "MaskedSelect":
            first = saved(node, "mask")
        elif name in ("IndexSelect", "Gather"):
            first = saved(node, "index") if self.dims(node, Value(ROWS, sizes))[0] == dim else None
        else:
            indices = saved(node, "indices")
            first = indices[dim] if indices is not None and dim < len(indices) else None
        if first is None:  # along other dimensions
            shape = self.shape(node, number)
            return one.like(shape=shape, pure=False) if one.kind == ROWS and dim == 0 and shape else unknown("%s takes entries by their number" % words(name))
        mask = str(first.dtype) in ("torch.bool", "torch.uint8")
        fewer = mask or first.numel() < sizes[dim]
        others = name == "Index" and any(i is not None for d, i in enumerate(indices) if d != dim)
        if fewer and not others and not one.pure and not self.given(first):
            return self.refuse("a mask or an index selects among the samples of a micro batch" if mask else "an index takes %d of %d samples of a micro batch" % (first.numel(), sizes[dim]))
        return unknown("samples are taken by %s" % ("a mask" if mask else "their number"))

    def refuse(self, why):
        self.refused = self.refused or why
        return unknown(why)


MEAN_OF, SUM_OF = 1, 2  # PyTorch's numbers of reductions


def read(node, rows, given):
    """Read the graph from the node of a loss, and return (word, reason, (operations, their numbers))."""
    graph = Graph(rows, given)
    try:
        word, why = graph.read(node)
    except Hooked as e:
        word, why = "unknown", str(e)
    except Exception as e:
        word, why = "unknown", "the graph of the loss could not be read: %s: %s" % (type(e).__name__, str(e)[:100])
    return word, why, ((), ()) if graph.inside else (tuple(graph.names), tuple(graph.numbers))
