# What keeps a loss that is a mean over samples from being proven equal for a smaller micro
# batch. A loop, a loss or a model may do more than what is known to work on each sample by
# itself: what is found here makes a smaller micro batch equal on average at best.

HOOKS = re.compile(r"^(register_hook|register_(full_)?backward(_pre)?_hook|spectral_norm)$")
METHODS = re.compile(r"^on_(substep_end|after_backward|before_backward|train_batch_(start|end))$")
RECURRENT = {"LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"}
REDUCES = {"mean", "sum", "max", "min", "amax", "amin", "norm", "std", "var", "median", "quantile", "prod", "logsumexp", "argmax"}
WHOLE = {"outer", "combinations", "tensordot", "bincount", "unique", "cdist", "permutation", "randperm", "randint", "index_select", "repeat_interleave"}
PIECES = {"chunk", "split", "tensor_split", "diff", "rfft", "fft", "logcumsumexp", "cumsum", "cumprod"}
QUIET = {"train", "eval", "zero_grad", "to", "cuda", "append", "step", "backward", "detach_", "no_sync", "requires_grad_"}


class Doubts(Mixing):
    """What is not known to work on each sample by itself."""

    def doubt(self, node, scope, found):
        if len(found) < 5:
            found.append({"kind": "doubt", "id": 0, "file": scope.file.path, "line": getattr(node, "lineno", 0), "text": text(node)[:60]})

    def doubts(self):
        found = []
        called = {id(c.func) for s in self.live for c in s.calls}
        for scope in self.live:
            self.anywhere(scope, called, found)
        computing = list(self.forwards()) + [s for s in self.scopes if id(s) in self.scanned]
        for scope in {id(s): s for s in computing + self.reached()}.values():
            self.inside_of(scope, scope.node, found)
        for scope in computing:
            self.remembers(scope, found)
        for scope in self.live:
            for loop in self.trains_in(scope):
                self.inside_of(scope, loop, found)
                self.carried(scope, loop, found)
        return found[:5]

    def reached(self):
        """The functions of the job's own that a training loop calls."""
        found = []
        for scope in self.live:
            for loop in self.trains_in(scope):
                for call in [n for n in ast.walk(loop) if isinstance(n, ast.Call)]:
                    found += [f for f in self.functions.get(last(call.func), [])[:4] if not isinstance(f.node, ast.Lambda) and last(call.func) not in QUIET | {"__init__", "step"}]
        return found

    def anywhere(self, scope, called, found):
        """Hooks, functions with a backward pass of their own, and what makes batches."""
        if not isinstance(scope.node, ast.Module) and METHODS.match(scope.name or ""):
            self.doubt(scope.node.body[0], scope, found)
        if scope.name == "forward" and scope.cls and scope.node.args.kwarg is not None and scope.has("labels"):
            self.doubt(scope.node.args.kwarg, scope, found)  # the Trainer does not divide its loss
        if scope.name == "backward" and scope.cls:
            self.doubt(scope.node.body[0], scope, found)
        for call in scope.calls:
            name, words = last(call.func), {k.arg: k.value for k in call.keywords}
            ordered = name in RECURRENT and not ("batch_first" in words and constant(words["batch_first"])[0] is True)
            chosen = name == "getattr" and len(call.args) > 1 and last(call.args[0]) == "nn" and not constant(call.args[1])[1]
            first = name == "Softmax" and constant(words.get("dim", call.args[0] if call.args else None))[0] == 0
            own = "batch_sampler" in words or "collate_fn" in words and any(self.reduces(f) for f in self.functions.get(last(words["collate_fn"]), []))
            if HOOKS.match(name) or name not in self.classes and ordered or chosen or first or own or "compute_loss_func" in words:
                self.doubt(call, scope, found)
        for node in ast.walk(scope.node) if isinstance(scope.node, ast.Module) else []:
            if isinstance(node, (ast.Attribute, ast.Name)) and re.match(r"(Sync)?BatchNorm\d?d?$|LazyBatchNorm", last(node)) and id(node) not in called and isinstance(node.ctx, ast.Load):
                self.doubt(node, scope, found)

    def reduces(self, f):
        return any(last(c.func) in ("mean", "norm", "std", "var", "median") for c in f.calls)

    def inside_of(self, scope, whole, found):
        """Operations of several samples at once."""
        tensors = self.read_by_loss(scope) if whole is not scope.node else None
        for node in ast.walk(whole):
            if isinstance(node, ast.Call) and self.several(node, scope):
                self.doubt(node, scope, found)
            elif isinstance(node, ast.BinOp) and self.relative(node):
                self.doubt(node, scope, found)
            elif isinstance(node, ast.Compare) and any(self.total(c) for c in node.comparators):
                self.doubt(node, scope, found)
            elif isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) > 1 and not isinstance(node.generators[0].iter, ast.Attribute) and "parameters" not in text(node):
                self.doubt(node, scope, found)
            elif isinstance(node, ast.Subscript) and isinstance(index(node), ast.Slice) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name) and (
                    tensors is None or node.value.id in tensors):
                self.doubt(node, scope, found)

    def several(self, call, scope):
        name = last(call.func)
        root = dotted(call.func).split(".")[0]
        if name in self.functions or root in ("math", "statistics", "os", "re", "random", "itertools") and name != "combinations":
            return False
        if name in WHOLE:
            counts = any(isinstance(c, ast.Call) and last(c.func) in ("len", "size") or isinstance(c, ast.Attribute) and c.attr == "shape" for a in call.args for c in ast.walk(a))
            return counts or name not in ("randint", "randperm", "permutation")
        if name in PIECES:
            if name == "split" and (not call.args or isinstance(constant(call.args[0])[0], str)):
                return False
            return not self.elsewhere(call)
        if name in ("sort", "argsort", "median", "quantile") and isinstance(call.func, ast.Attribute) and not call.keywords and not (call.args if self.method(call) else call.args[1:]):
            return True
        return name in REDUCES and isinstance(call.func, ast.Attribute) and self.first(call)

    def elsewhere(self, call):
        """Whether a call names a dimension that is not the first."""
        words = {k.arg: k.value for k in call.keywords}
        given = words.get("dim", words.get("axis"))
        args = call.args if self.method(call) else call.args[1:]
        if given is None:
            given = args[-1] if args and (len(args) > 1 or last(call.func).startswith("cum")) else None
        value, known = constant(given) if given is not None else (None, False)
        return known and value not in (0, None)

    def total(self, node):
        """Whether a value is a statistic of all elements."""
        while isinstance(node, ast.Call) and last(node.func) in ("detach", "item", "sqrt", "abs", "clamp", "exp", "float") and isinstance(node.func, ast.Attribute):
            node = node.func.value
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last(node.func) in REDUCES - {"sum", "argmax"} and self.over(node) == "all" and dotted(node.func).split(".")[0] not in ("np", "math")

    def relative(self, node):
        """Whether values are set in relation to a statistic of all of them."""
        if isinstance(node.op, (ast.Sub, ast.Div)) and self.total(node.right) and not constant(node.left)[1] and not self.total(node.left):
            return True
        return isinstance(node.op, ast.Mult) and self.total(node.left) != self.total(node.right) and not any(
            constant(side)[1] or isinstance(side, (ast.Name, ast.Attribute)) for side in (node.left, node.right))

    def remembers(self, scope, found):
        """Numbers that a model or a loss counts up, and reads."""
        for node in ast.walk(scope.node):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            if not isinstance(target, (ast.Attribute, ast.Subscript)):
                continue
            name = text(target)
            inner = target.value if isinstance(target, ast.Subscript) else target
            outlasts = isinstance(inner, ast.Attribute) and last(inner.value) == "self" or isinstance(inner, ast.Name) and scope.default(inner.id) is not None
            reads = isinstance(node, ast.AugAssign) or any(text(n) == name for n in ast.walk(node.value) if isinstance(n, (ast.Attribute, ast.Subscript)))
            if outlasts and reads:
                self.doubt(node, scope, found)

    def carried(self, scope, loop, found):
        """What one micro batch leaves for the loss of the next."""
        read = self.read_by_loss(scope)
        written, used = {}, {}
        for node in ast.walk(loop):
            if isinstance(node, ast.Name) and node.id in read:
                at = written if isinstance(node.ctx, ast.Store) else used
                at[node.id] = min(at.get(node.id, 1 << 30), node.lineno)
        names = {n.id for inner in ast.walk(loop) if hasattr(inner, "target") and isinstance(inner, (ast.For, ast.comprehension)) for n in ast.walk(inner.target) if isinstance(n, ast.Name)}
        counters = set(self.counted(scope)) & names & read
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and counters and not self.offsets_of(loop):
            self.doubt(loop.target, scope, found)
        for name, line in sorted(written.items()):
            fresh = any(isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for target in n.targets for t in ast.walk(target)) and not any(
                isinstance(m, ast.Name) and m.id == name for m in ast.walk(n.value)) and n.lineno <= line for n in ast.walk(loop)) or name in names
            if not fresh and used.get(name, 1 << 30) <= max(line, used.get(name, 0)):
                self.doubt(next(n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)), scope, found)
        for node in ast.walk(loop):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) and isinstance(node.value.func.value, ast.Name):
                if node.value.func.value.id in read and node.value.func.attr not in QUIET and not re.search(r"scaler|sched", node.value.func.value.id, re.I) and (
                        id(node) not in self.synchronized(scope)):
                    self.doubt(node, scope, found)
            elif isinstance(node, ast.If) and any(isinstance(n, ast.Continue) for n in node.body) and any(isinstance(n, ast.Name) and n.id in written for n in ast.walk(node.test)):
                self.doubt(node.test, scope, found)
            elif isinstance(node, ast.Call) and (last(node.func) == "load_state_dict" or last(node.func) == "requires_grad_" and node.args and constant(node.args[0])[0] is False):
                self.doubt(node, scope, found)
            elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in read for t in node.targets) or isinstance(node, ast.Call) and last(node.func) == "backward":
                self.sized(node, scope, found)

    def sized(self, node, scope, found):
        """The size of a micro batch, or the number of them, as a factor of the loss."""
        for whole in ast.walk(node):
            if isinstance(whole, ast.BinOp) and isinstance(whole.op, (ast.Mult, ast.Div)):
                for n in (whole.left, whole.right):
                    if isinstance(n, ast.Attribute) and re.search(r"(^|_)(batch_?size|bs|bsz)$", n.attr) or (
                            isinstance(n, ast.Call) and last(n.func) == "len" and n.args and re.search(r"load|(^|_)dl$", last(n.args[0]), re.I)):
                        self.doubt(whole, scope, found)

    def offsets_of(self, loop):
        return last(loop.iter.func) == "range" and len(loop.iter.args) == 3

    def touches(self, node):
        """Whether a statement changes the gradients that are added up, in place."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("sign_", "clamp_", "mul_", "copy_", "add_") and re.search(r"\.grad(\.data)?$", text(node.func.value)):
            return True
        return Mixing.touches(self, node)

    def facts(self):
        found = Mixing.facts(self)
        found["unlike"] += self.doubts()
        return found


class Late(BaseException):
    """The time for reading is over."""


def late(*_):
    raise Late


def main():
    sys.setrecursionlimit(5000)
    gc.disable()  # it ends soon
    given = json.loads(sys.stdin.buffer.read().decode("utf-8", "replace"))
    signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, given["seconds"])  # a busy machine changes no answer
    try:
        said = json.dumps(Doubts(given["sources"]).facts())
    except Late:
        sys.exit("the sources take longer than %g s to read" % given["seconds"])
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    sys.stdout.write("\n" + said + "\n")


main()
