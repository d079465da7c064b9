# Whether a loss selects among the samples of a micro batch, or compares them, by the graph that the backward pass is
# about to use. Only the graph's nodes are read: their names, their links, and what they keep. Nothing is computed.
import sys

MARK = "gpurun_rows"  # in a node's metadata, by the number of its result: the shape of that output of the root
MOST = 600  # nodes that are read
DEPTH = 150  # nodes between the loss and what it is computed from
MEAN, SUM = 1, 2  # PyTorch's numbers of reductions

SELECTING = {"Max", "Min", "Amax", "Amin", "Median", "Nanmedian", "Kthvalue", "Mode", "Topk", "Sort", "Cummax", "Cummin"}
INDEXING = {"MaskedSelect", "Index", "IndexSelect", "Gather"}
ACROSS = {"Softmax", "LogSoftmax", "Cumsum", "Cumprod", "Logcumsumexp", "Logsumexp", "Norm", "LinalgVectorNorm", "Std", "Var", "Prod"}
PRODUCTS = {"Mm", "Addmm", "Cdist"}
VIEWS = {"View", "UnsafeView", "ReshapeAlias", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "T", "Permute", "Expand", "Slice", "Alias", "ToCopy"}
FILLED = {"MaskedFill", "IndexPut"}  # PyTorch selects so what was not filled: the rows that label smoothing counts
WORDS = {"Amax": "max", "Amin": "min", "Nanmedian": "median", "LinalgVectorNorm": "norm", "LogSoftmax": "log_softmax", "Mm": "a matrix product", "Addmm": "a matrix product"}


class Hooked(Exception):
    """Raised where reading the graph would run code of the job."""


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


def mark(tensor):
    """Notes in the graph that a tensor is the root's output. The graph frees the note with itself."""
    node = tensor.grad_fn
    if node is not None:
        node.metadata.setdefault(MARK, {})[tensor.output_nr] = tuple(tensor.shape)


def marked(node, number):
    """Return the shape of a node's result that is an output of the root, None for another."""
    return node.metadata.get(MARK, {}).get(number) if hasattr(node, "metadata") else None


def name_of(node):
    return node.name().rpartition("Backward")[0] or node.name()


def is_leaf(node):
    return node is not None and "AccumulateGrad" in node.name()


def signed(n):
    """PyTorch gives some numbers without their sign."""
    return n - (1 << 64) if n >= 1 << 63 else n


def words(name):
    return WORDS.get(name, name.lower())


class Graph:
    """Reads the graph of one loss over so many rows. Given has the addresses of the loader's tensors."""

    def __init__(self, rows, given):
        self.rows, self.given = rows, given
        self.known, self.left, self.depth = {}, MOST, 0
        self.inside = False  # whether the root itself computes the loss
        self.refused = self.compared = ""

    def read(self, node):
        self.inside = marked(node, 0) == ()
        self.look(node)

    def follows(self, node, number):
        """Look at what a node's result is computed from; return whether it follows from an output of the root."""
        if node is None or is_leaf(node):
            return False
        if marked(node, number) is not None:
            return True
        if node not in self.known:
            self.left -= 1
            self.known[node] = self.left >= 0 and self.depth < DEPTH and self.look(node)
        return self.known[node]

    def look(self, node):
        if self.inside and any(is_leaf(child) for child, _ in node.next_functions):
            return True  # of the model: how it computes its rows is asked of the model
        self.depth += 1
        found = [self.follows(*child) for child in node.next_functions]
        self.depth -= 1
        name = name_of(node)
        if not any(found):
            return False
        if name in SELECTING or name in INDEXING or name in ACROSS:
            self.along(node, name)
        elif name in PRODUCTS and all(found[-2:]) and not self.inside:
            self.compared = self.compared or "%s compares the samples of a micro batch with each other" % words(name)
        elif name.startswith("NllLoss") and saved(node, "weight") is not None and saved(node, "reduction") == MEAN:
            self.compared = self.compared or "the mean is weighted by the classes of the micro batch"
        return True

    def along(self, node, name):
        """Look at an operation that works along some dimensions: is that of the rows one of them?"""
        shape = self.shape(node)
        dim = self.dim_of_rows(shape)
        if dim is None or self.inside and len(shape) > 1:
            return
        if name in INDEXING:
            self.indexed(node, name, shape, dim)
        elif dim in dims(node, len(shape)):
            if name in SELECTING:
                self.refused = self.refused or "%s selects among the samples of a micro batch" % words(name)
            else:
                self.compared = self.compared or "%s is computed over the samples of a micro batch" % words(name)

    def shape(self, node):
        """Return the shape of what a node was given, () where it is not known."""
        for name in ("self_sym_sizes", "self_sizes"):
            found = saved(node, name)
            if found is not None:
                return tuple(map(int, found))
        child, number = node.next_functions[0]
        kept = getattr(child, "_input_metadata", None)  # PyTorch 2.1 and later
        if kept is not None and number < len(kept):
            return tuple(map(int, kept[number].shape))
        found = [each for each in (saved(node, "self"), saved(node, "result")) if each is not None]
        return tuple(found[0].shape) if found else ()

    def dim_of_rows(self, shape):
        """Return the dimension that counts the rows, or several of each; None for none."""
        if self.rows in shape:
            return shape.index(self.rows)
        return 0 if shape and shape[0] and shape[0] % self.rows == 0 else None

    def indexed(self, node, name, shape, dim):
        """Look at entries that are taken by a mask or by their number. Those of the root's own output are mostly those
        of real tokens, and what the loader gives is known before the loss."""
        if name == "MaskedSelect":
            filled = name_of(node.next_functions[0][0]) in FILLED
            indices = {} if filled else {dim: saved(node, "mask")}
        elif name == "Index":
            indices = {d: index for d, index in enumerate(saved(node, "indices") or ()) if index is not None}
        else:
            indices = {dims(node, len(shape))[0]: saved(node, "index")}
        index = indices.get(dim)
        if index is None or len(indices) > 1 or index.data_ptr() in self.given or self.is_output(*node.next_functions[0]):
            return
        if str(index.dtype) in ("torch.bool", "torch.uint8"):
            self.refused = self.refused or "a mask or an index selects among the samples of a micro batch"
        elif index.numel() < shape[dim]:
            self.refused = self.refused or "an index takes %d of %d samples of a micro batch" % (index.numel(), shape[dim])

    def is_output(self, node, number):
        """Return whether a node's result is an output of the root, or a view of one."""
        while node is not None and marked(node, number) is None:
            if name_of(node) not in VIEWS:
                return False
            node, number = node.next_functions[0]
        return node is not None


def dims(node, rank):
    """Return the dimensions that a node works on, all where it names none; counted from the front."""
    found = saved(node, "dim")
    if found is None or found == ():
        return list(range(rank))
    return [signed(d) % max(rank, 1) for d in (found if isinstance(found, tuple) else (found,))]


def read(node, rows, given):
    """Read the graph from the node of a loss over so many rows. Return how it selects among them, and how it compares
    them, each "" where it does not or that is not known."""
    graph = Graph(rows, given)
    try:
        if rows > 1:
            graph.read(node)
    except Exception:  # what was found is true, and what was not is not known
        pass
    return graph.refused, graph.compared
