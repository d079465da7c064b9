# What a training loop does in addition to the loss: to the gradients of each micro batch, to the
# optimizer's steps, and to values that one micro batch leaves for the next.

HOOKS = re.compile(r"^(register_hook|register_(full_)?backward(_pre)?_hook|spectral_norm)$")
METHODS = re.compile(r"^on_(substep_end|after_backward|before_backward|train_batch_(start|end))$")
MAKES = {"stack", "tensor", "as_tensor", "LongTensor", "FloatTensor", "from_numpy", "zip", "list", "tuple", "default_collate", "dict", "items", "keys", "len", "int", "float", "long", "append", "unsqueeze", "array", "asarray", "isinstance", "to", "pad_sequence", "pad", "max", "size", "full", "zeros", "ones"}


class Loops(Loss):
    """Finds what makes the gradients of a batch differ from the mean of its samples'."""

    def __init__(self, sources):
        self.updates = set()
        super().__init__(sources)

    def marked(self, node):
        return Loss.marked(self, node) or bool(self.written(node))

    # Changes to the gradients of each micro batch.

    def touches(self, node):
        """How a statement changes the accumulated gradients, or the learning rate; empty if it
        does not."""
        of = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if isinstance(node, ast.Call) and re.match(r"clip_grad_(norm|value)s?_?$|zero_grad$|clip_gradients?$", last(node.func)):
            return "gradients"
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else [of] if of is not None and node.func.attr.endswith("_") else []
        rate = any(isinstance(t, ast.Subscript) and constant(index(t))[0] in ("lr", "weight_decay", "momentum", "betas") for t in targets)
        return "touched" if rate and not self.is_rate(node) or any(re.search(r"\.grad(\.data)?$", text(t)) for t in targets) else ""

    def is_state(self, node):
        return Loss.is_state(self, node) or id(node) in self.updates

    def each_step(self, node):
        return Loss.each_step(self, node) or bool(self.touches(node))

    def gradients(self):
        found = []
        for scope, nodes in self.micro_batches():
            for node in nodes:
                how = self.touches(node)
                if how and id(node) not in self.synchronized(scope):
                    found.append({"kind": how, "id": place(node), "file": self.owner(node, scope), "line": node.lineno, "text": text(node.func) + "()" if how == "gradients" else text(node)[:60]})
        for scope in self.live:
            for node in walk(scope.node):
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
        """The numbers that loops count: by name, their start, and whether they rise in steps of
        1."""
        found = {}
        for loop in scope.fors:
            made, names = loop.iter, [n.id for n in walk(loop.target) if isinstance(n, ast.Name)]
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
        """Steps that a gate makes at micro batches other than the last ones."""
        found = []
        for scope in self.live:
            counted = self.counted(scope)
            for node in walk(scope.node):
                if not isinstance(node, ast.If) or not counted:
                    continue
                for test in walk(node.test):
                    if not (isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod)):
                        continue
                    names = [n.id for n in walk(test.left) if isinstance(n, ast.Name) and n.id in counted]
                    if len(names) != 1:
                        continue
                    start, by_one = counted[names[0]]
                    whole = any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Div, ast.FloorDiv)) for n in walk(test.left))
                    where = {"id": 0, "file": scope.file.path, "line": node.lineno, "text": names[0]}
                    if not by_one and not whole:
                        found.append(dict(where, kind="offset"))
                    elif start in ("first", 0) and isinstance(test.left, ast.Name) and self.is_zero(node.test, test) and self.under_all(node.body)[0]:
                        found.append(dict(where, kind="early"))
        return found[:5]

    def is_zero(self, whole, part):
        """Whether a condition is true if its part is 0."""
        if whole is part:
            return False
        if isinstance(whole, ast.UnaryOp) and isinstance(whole.op, ast.Not):
            return whole.operand is part
        if isinstance(whole, ast.BoolOp):
            return any(self.is_zero(v, part) for v in whole.values)
        return isinstance(whole, ast.Compare) and whole.left is part and isinstance(whole.ops[0], ast.Eq) and constant(whole.comparators[0]) == (0, True)

    # Values that outlast a micro batch, and that the loss reads.

    def find_updates(self):
        """The statements in loops that write a tensor from outside the loop that the loss
        reads."""
        for scope in self.live:
            for loop in self.trains_in(scope):
                writes = [(n, self.written(n)) for n in self.once(loop.body) if self.written(n)]
                if writes:
                    targets = [loop.target] if hasattr(loop, "target") else []
                    for s in walk(loop):
                        targets += s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.For) else []
                    fresh = {n.id for t in targets for n in walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                    read = self.read_by_loss(scope) - fresh
                    self.updates |= {id(n) for n, name in writes if name in read}

    def written(self, node):
        """The name of the tensor that a statement changes in place."""
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                return target.value.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and re.match(r"(mul|add|sub|lerp|copy|index_add|index_copy|scatter|scatter_add)_$", node.func.attr):
            return node.func.value.id
        return ""

    def read_by_loss(self, scope):
        """The names in a function from which its backpropagated value is computed."""
        names, stack = set(), [node for node, s, _, _ in self.roots() if s is scope]
        while stack:
            for n in walk(stack.pop()):
                if isinstance(n, ast.Name) and n.id not in names:
                    names.add(n.id)
                    stack += [w if how == "value" else w[0] for how, w in scope.assigned.get(n.id, []) if how in ("value", "item")]
        return names

    # Doubtful cases.

    def doubts(self):
        self.doubted, called = [], {id(c.func) for s in self.live for c in s.calls}
        for scope in self.live:
            self.anywhere(scope, called)
            for loop in self.trains_in(scope):
                self.turns(scope, loop)
        for scope in self.forwards():
            if scope.name == "forward":
                for r in scope.returns[:WIDTH]:
                    self.passed(r, scope)
        return self.doubted[:5]

    def doubt(self, node, scope, why=""):
        self.doubted.append({"kind": "doubt", "id": 0, "file": scope.file.path, "line": getattr(node, "lineno", 0), "text": why or "%s may not work on each sample by itself" % text(node)[:50]})

    def passed(self, node, scope):
        """The values that a model's forward pass returns, except a loss, which is checked as
        one."""
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = [v for k, v in zip(node.keys, node.values) if k is not None and "loss" not in str(constant(k)[0])]
        elif isinstance(node, ast.Call) and (node.keywords and not node.args or self.field_names(node, scope)):
            parts = node.args + [k.value for k in node.keywords if "loss" not in str(k.arg)]
        else:
            parts = [] if re.search("loss", text(node), re.I) else [node]
        for part in parts:
            one = self.loss(part, scope) if not re.search("loss", text(part), re.I) else None
            if one is not None and one["kind"] in ("data", "pairs", "unknown", "masked"):
                self.doubted.append({"kind": "doubt", "id": 0, "file": one["file"], "line": one["line"], "text": one["text"] if one["kind"] != "pairs" else "%s compares samples" % one["text"][:50]})

    def anywhere(self, scope, called):
        """Hooks, functions with their own backward pass, and code that makes batches."""
        if not isinstance(scope.node, ast.Module) and METHODS.match(scope.name or ""):
            self.doubt(scope.node.body[0], scope)
        if scope.name == "forward" and scope.cls and scope.node.args.kwarg is not None and scope.has("labels"):
            self.doubt(scope.node.args.kwarg, scope)  # the Trainer does not divide its loss
        if scope.name == "backward" and scope.cls:
            self.doubt(scope.node.body[0], scope)
        for call in scope.calls:
            name, words = last(call.func), {k.arg: k.value for k in call.keywords}
            chosen = name == "getattr" and len(call.args) > 1 and last(call.args[0]) == "nn" and not constant(call.args[1])[1]
            collates = words.get("collate_fn", words.get("data_collator"))
            own = "batch_sampler" in words or collates is not None and any(last(c.func) not in MAKES for f in self.functions.get(last(collates), []) for c in f.calls)
            sized = name not in self.classes and re.search(r"^(Adam\w*|SGD|RMSprop|Adagrad|Lion|LAMB|NAdam|RAdam|AdamW\w*)$", name) and any(k != "lr" and self.sizes(v) for k, v in words.items() if k)
            undivided = "compute_loss_func" in words and not any(isinstance(m, ast.Name) and m.id.startswith("num_items") for f in self.functions.get(last(words["compute_loss_func"]), []) for m in walk(f.node))
            if HOOKS.match(name) or chosen or own or sized or undivided:
                self.doubt(call, scope)
        for node in walk(scope.node) if isinstance(scope.node, ast.Module) else []:
            if isinstance(node, (ast.Attribute, ast.Name)) and re.match(r"(Sync)?BatchNorm\d?d?$|LazyBatchNorm", last(node)) and id(node) not in called and isinstance(node.ctx, ast.Load):
                self.doubt(node, scope)

    def turns(self, scope, loop):
        """What a loop does only in some of its rounds, or leaves for the next one."""
        prepared = {last(a) for c, _ in self.calls.get("prepare", []) for a in c.args}
        for block in self.blocks(loop.body):
            for s in block:
                ends = isinstance(s, ast.If) and any(isinstance(b, (ast.Continue, ast.Break)) for b in s.body)
                if ends and not self.under_all(s.body)[0] and not re.search(r"%|isnan|isfinite|isinf", text(s.test)):
                    test = self.loss(s.test, scope)
                    if test is not None and test["kind"] != "free":
                        self.doubt(s.test, scope, "if %s" % text(s.test)[:50])
        for node in walk(loop):
            if not isinstance(node, ast.Call) or id(node) in self.synchronized(scope):
                continue
            if last(node.func) == "load_state_dict" or last(node.func) == "requires_grad_" and node.args and constant(node.args[0])[0] is False:
                self.doubt(node, scope)
            elif prepared and self.calls.get("accumulate") and self.is_rate(node) and last(node.func.value) not in prepared:
                self.doubt(node, scope, "%s is run for each micro batch: %s was not given to prepare()" % (text(node), text(node.func.value)))

    def facts(self):
        self.find_updates()
        found = Loss.facts(self)
        found["unlike"] += self.gradients() + self.offbeat() + self.doubts()
        return found
