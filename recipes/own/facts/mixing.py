# What a training loop and a model do with the samples of a micro batch together, beside the
# loss, and what they do to the gradients of each micro batch.

CHOOSES = {"topk", "sort", "argsort", "kthvalue", "median", "nanmedian", "quantile", "max", "min", "amax", "amin", "masked_select", "nonzero", "unique"}
MIXES = {"roll", "flip", "flipud", "normalize", "softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "std", "var", "std_mean", "var_mean", "sort", "argsort", "median", "quantile", "kthvalue"}


class Mixing(Loss):
    """What makes the gradients of a batch others than the mean of its samples'."""

    def __init__(self, sources):
        self.updates = set()
        super().__init__(sources)

    def first(self, call):
        """Whether a call works along the first dimension."""
        name, words = last(call.func), {k.arg: k.value for k in call.keywords}
        method = isinstance(call.func, ast.Attribute) and dotted(call.func).split(".")[0] not in ("torch", "F", "nn", "functional")
        args = call.args if method else call.args[1:]
        given = words.get("dim", words.get("dims", words.get("axis")))
        if given is None:
            place = {"roll": 1, "normalize": 1, "quantile": 1, "kthvalue": 1}.get(name, 0)
            given = args[place] if len(args) > place else None
        if name == "flipud":
            return True
        dims = [constant(d)[0] for d in (given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given])] if given is not None else []
        return any(d == 0 and d is not False for d in dims)

    def chosen(self, node, scope, depth=0):
        """How a mean is taken over samples that are chosen among those of the micro batch;
        empty where it is not."""
        while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(node, ast.Call):
                name = last(node.func)
                method = isinstance(node.func, ast.Attribute) and dotted(node.func).split(".")[0] != "torch"
                if name in CHOOSES and name not in self.functions:
                    words = {k.arg for k in node.keywords}
                    numbers = [a for a in (node.args if method else node.args[1:])]
                    within = "dim" in words or "axis" in words or len(numbers) > (1 if name in ("topk", "kthvalue", "quantile") else 0)
                    if not within or self.first(node):
                        return text(node)[:60]
                    return ""
                if name not in SAME or not method:
                    return ""
                node = node.func.value
                continue
            node = node.value
        if isinstance(node, ast.Name) and node.id in scope.assigned and depth < 3:
            for how, what in self.reaching(node.id, scope, node)[:4]:
                found = self.chosen(what if how == "value" else what[0], scope, depth + 1) if how in ("value", "item") else ""
                if found:
                    return found
        return ""

    def mixes(self):
        """Where samples of a micro batch meet, in a loop that trains, in a model's forward
        pass, or in a function that computes a loss."""
        nodes = [(n, s) for s in self.forwards() for n in s.calls if self.may_mix(n)]
        nodes += [(n, s) for s in self.scopes if id(s) in self.scanned for n in s.calls if self.may_mix(n)]
        nodes += [(n, scope) for scope, inner in self.micro_batches() for n in inner if self.may_mix(n)]
        found = {}
        for call, scope in nodes:
            of = call.func.value if isinstance(call.func, ast.Attribute) and dotted(call.func).split(".")[0] not in ("torch", "F", "nn", "functional") else call.args[0] if call.args else None
            if of is not None and self.first(call) and self.samples(of, scope) and not self.stacked(of, scope):
                found[call.lineno, call.col_offset] = {"kind": "mixes", "id": 0, "file": self.owner(call, scope), "line": call.lineno, "text": text(call)[:60]}
        return list(found.values())[:5]

    def may_mix(self, node):
        return isinstance(node, ast.Call) and last(node.func) in MIXES and last(node.func) not in self.functions and dotted(node.func).split(".")[0] not in ("np", "numpy", "math", "statistics")

    def marked(self, node):
        return Loss.marked(self, node) or self.may_mix(node) or bool(self.written(node))

    def stacked(self, node, scope):
        """Whether the first dimension is that of a list of tensors."""
        return any(isinstance(made, ast.Call) and last(made.func) == "stack" for made, _, _ in self.origins(node, scope))

    # What is done to the gradients of each micro batch.

    def touches(self, node):
        """Whether a statement changes the gradients that are added up."""
        if isinstance(node, ast.Call):
            return bool(re.match(r"clip_grad_(norm|value)s?_?$|zero_grad$|clip_gradients?$", last(node.func)))
        return False

    def is_state(self, node):
        return Loss.is_state(self, node) or id(node) in self.updates

    def each_step(self, node):
        return Loss.each_step(self, node) or self.touches(node)

    def gradients(self):
        found = []
        for scope, nodes in self.micro_batches():
            for node in nodes:
                if self.touches(node):
                    found.append({"kind": "gradients", "id": place(node), "file": self.owner(node, scope), "line": node.lineno, "text": text(node.func) + "()"})
        for scope in self.live:
            for node in ast.walk(scope.node):
                by = None
                if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)) and re.search(r"\.grad(\.data)?$", text(node.target)):
                    by = node.value
                elif isinstance(node, ast.Call) and last(node.func) in ("div_", "mul_") and isinstance(node.func, ast.Attribute) and re.search(r"\.grad(\.data)?$", text(node.func.value)) and node.args:
                    by = node.args[0]
                if by is not None:
                    if isinstance(by, ast.BinOp) and isinstance(by.op, ast.Div) and constant(by.left)[1]:
                        by = by.right
                    found.append({"kind": "rescaled", "id": 0, "file": scope.file.path, "line": node.lineno, "text": text(node)[:60] or text(by), "value": plain(self.value(by, scope))})
        return found[:20]

    # When the optimizer makes its step.

    def counted(self, scope):
        """The numbers that loops count: by name, from which number and in steps of 1 or not."""
        found = {}
        for loop in scope.fors:
            made, names = loop.iter, [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
            while isinstance(made, ast.Call) and last(made.func) in ("tqdm", "track", "progress_bar") and made.args:
                made = made.args[0]
            if not isinstance(made, ast.Call) or not names:
                continue
            words = {k.arg: k.value for k in made.keywords}
            if last(made.func) == "enumerate":
                start = words.get("start", made.args[1] if len(made.args) > 1 else None)
                found[names[0]] = ("first" if start is None else constant(start)[0], True)
            elif last(made.func) in ("range", "trange"):
                start = made.args[0] if len(made.args) > 1 else None
                found[names[0]] = ("first" if start is None or constant(start) == (0, True) else None, len(made.args) < 3 or constant(made.args[2]) == (1, True))
        return found

    def offbeat(self):
        """Steps that a gate makes at other micro batches than the last ones."""
        found = []
        for scope in self.live:
            counted = self.counted(scope)
            for node in ast.walk(scope.node):
                if not isinstance(node, ast.If) or not counted:
                    continue
                for test in ast.walk(node.test):
                    if not (isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod)):
                        continue
                    names = [n.id for n in ast.walk(test.left) if isinstance(n, ast.Name) and n.id in counted]
                    if len(names) != 1:
                        continue
                    start, by_one = counted[names[0]]
                    whole = any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Div, ast.FloorDiv)) for n in ast.walk(test.left))
                    where = {"id": 0, "file": scope.file.path, "line": node.lineno, "text": names[0]}
                    if not by_one and not whole:
                        found.append(dict(where, kind="offset"))
                    elif start in ("first", 0) and isinstance(test.left, ast.Name) and self.is_zero(node.test, test) and self.under_all(node.body)[0]:
                        found.append(dict(where, kind="early"))
        return found[:5]

    def is_zero(self, whole, part):
        """Whether a condition holds where its part is 0."""
        if whole is part:
            return False
        if isinstance(whole, ast.UnaryOp) and isinstance(whole.op, ast.Not):
            return whole.operand is part
        if isinstance(whole, ast.BoolOp):
            return any(self.is_zero(v, part) for v in whole.values)
        return isinstance(whole, ast.Compare) and whole.left is part and isinstance(whole.ops[0], ast.Eq) and constant(whole.comparators[0]) == (0, True)

    # What outlasts a micro batch, and the loss reads.

    def find_updates(self):
        """The statements of loops that write a tensor from outside the loop that the loss reads."""
        for scope in self.live:
            for loop in self.trains_in(scope):
                writes = [(n, self.written(n)) for n in self.once(loop.body) if self.written(n)]
                if writes:
                    targets = [loop.target] if hasattr(loop, "target") else []
                    for s in ast.walk(loop):
                        targets += s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.For) else []
                    fresh = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                    read = self.read_by_loss(scope) - fresh
                    self.updates |= {id(n) for n, name in writes if name in read}

    def written(self, node):
        """The name of the tensor that a statement writes to in place."""
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                return target.value.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and re.match(r"(mul|add|sub|lerp|copy|index_add|index_copy|scatter|scatter_add)_$", node.func.attr):
            return node.func.value.id
        return ""

    def read_by_loss(self, scope):
        """The names of a function that what it backpropagates is computed of."""
        names, stack = set(), [node for node, s, _, _ in self.roots() if s is scope]
        while stack:
            for n in ast.walk(stack.pop()):
                if isinstance(n, ast.Name) and n.id not in names:
                    names.add(n.id)
                    stack += [w if how == "value" else w[0] for how, w in scope.assigned.get(n.id, []) if how in ("value", "item")]
        return names

    def facts(self):
        self.find_updates()
        found = Loss.facts(self)
        found["unlike"] += self.mixes() + self.gradients() + self.offbeat()
        return found
