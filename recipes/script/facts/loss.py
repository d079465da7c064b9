# The kind of the loss: a mean over samples that is divided by the accumulation, or a value that a
# smaller micro batch changes. It is found by following the backpropagated value.

FUNCTIONAL = {"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
              "cosine_embedding_loss", "ctc_loss", "gaussian_nll_loss", "poisson_nll_loss", "margin_ranking_loss", "soft_margin_loss", "multilabel_margin_loss",
              "multilabel_soft_margin_loss", "multi_margin_loss", "triplet_margin_loss", "hinge_embedding_loss", "triplet_margin_with_distance_loss"}
CRITERIA = {"CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "CosineEmbeddingLoss", "CTCLoss",
            "GaussianNLLLoss", "PoissonNLLLoss", "MarginRankingLoss", "SoftMarginLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "TripletMarginLoss",
            "HingeEmbeddingLoss", "LabelSmoothingCrossEntropy", "SoftTargetCrossEntropy"}
SAME = {"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "clone", "contiguous", "eval", "train", "requires_grad_", "type", "compile", "prepare", "wait"}
PER_SAMPLE = re.compile(r"For(SequenceClassification|ImageClassification|AudioClassification|VideoClassification|MultipleChoice)")
SIZE = re.compile(r"^(B|N|b|n|bs|bsz|batch|nbatch|n_batch|batch_len|num_samples|n_samples|(micro_|train_|this_|cur_|mini_?)?batch_?sz?(ize)?)$")
RANDOM = {"randn", "rand", "randn_like", "rand_like", "randint", "randint_like", "bernoulli", "multinomial", "normal", "normal_", "uniform_", "bernoulli_", "rsample", "randperm", "poisson"}
RANKS = {"free": 0, "mean": 1, "rows": 2, "data": 3, "masked": 4, "unknown": 5, "sum": 6, "pairs": 7}
LOSSY = ("mean", "sum", "masked", "unknown", "pairs")


BUILDS = re.compile(r"^_*(init|build|create|make|load|setup|configure|reset_param|register|prepare|set_up)")


def abstract(function):
    """Whether a method only raises an error: those of its subclasses run."""
    return isinstance(function.body, list) and isinstance(function.body[-1], ast.Raise) and all(isinstance(s, (ast.Raise, ast.Expr)) for s in function.body)


class Loss(Rows):
    """The kind of a job's loss."""

    def __init__(self, sources):
        self.nested, self.tree, self.looks, self.compared, self.scanned, self.batches, self.held = 0, {}, 0, {}, set(), None, []
        super().__init__(sources)

    # The conditions and loops around statements.

    def paths(self, scope):
        """The conditions and loops around each node of a function."""
        if id(scope) not in self.tree:
            found, stack = {}, [(n, ()) for n in (scope.node.body if isinstance(scope.node.body, list) else [scope.node.body])]
            while stack:
                node, at = stack.pop()
                found[id(node)] = at
                branches = isinstance(node, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try))
                for name, inner in ast.iter_fields(node):
                    for one in inner if isinstance(inner, list) else [inner]:
                        if isinstance(one, ast.AST):
                            stack.append((one, at + ((id(node), name, node),) if branches and name in ("body", "orelse", "handlers") else at))
            self.tree[id(scope)] = found
        return self.tree[id(scope)]

    def path(self, node, scope):
        paths = self.paths(scope)
        if id(node) not in paths and isinstance(node, ast.BinOp):
            node = node.right  # of an augmented assignment, which was made into a sum or a quotient
        node = getattr(node, "beside", node)
        return paths.get(id(node), ())

    def reaching(self, name, scope, use):
        """The assignments to a name, one of which is in force at its use."""
        found = []
        given = [(how, what) for how, what in scope.assigned.get(name, []) if how in ("value", "item", "loop")]
        where = lambda what: what[0] if isinstance(what, tuple) else what
        line, around = getattr(use, "lineno", 0), {(a, b) for a, b, _ in self.path(use, scope)}
        before = [g for g in given if getattr(where(g[1]), "end_lineno", 0) < line]
        for how, what in sorted(before, key=lambda g: -where(g[1]).lineno):
            at = self.path(where(what), scope)
            if how == "loop":
                if (id(getattr(what, "gpurun_up", None)), "body") not in around:
                    continue
                found.append((how, what))
                break
            if any((a, b) not in around and any(a == c and b != d for c, d in around) and isinstance(n, ast.If) for a, b, n in at):
                continue  # of the other branch
            found.append((how, what))
            if all((a, b) in around or isinstance(n, ast.Try) for a, b, n in at):
                break
        return found or [g for g in given if getattr(where(g[1]), "lineno", 0) != line] or given

    def origins(self, node, scope, depth=0, n=None):
        """The possible expressions of a name or an attribute, with their scopes; n is its index
        among several unpacked ones."""
        if depth > 8 or self.looks > 20000:
            return []
        self.looks += 1
        if isinstance(node, ast.Name):
            return self.named_origins(node, scope, depth, n)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return [o for v, s, owner in self.stores.get(node.attr, [])[:WIDTH] if owner == "self" and s.cls == scope.cls for o in self.origins(v, s, depth + 1, n)] or [(node, scope, n)]
        if isinstance(node, ast.Attribute) and last(node.value) not in ("nn", "F", "torch"):
            found = [o for v, s, owner in self.stores.get(node.attr, [])[:WIDTH] if owner == "self" for o in self.origins(v, s, depth + 1, n)]
            return found or [(node, scope, n)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SAME and node.func.attr != "prepare":
            return self.origins(node.args[0] if node.func.attr == "compile" and node.args else node.func.value, scope, depth + 1, n)
        if isinstance(node, ast.Call) and last(node.func) in ("DistributedDataParallel", "DDP", "DataParallel", "FullyShardedDataParallel", "FSDP", "convert_sync_batchnorm", "get_peft_model", "prepare_model_for_kbit_training", "prepare", "setup") and node.args:
            if last(node.func) in ("prepare", "setup") and n is not None and n < len(node.args):
                return self.origins(node.args[n], scope, depth + 1)
            return self.origins(node.args[0], scope, depth + 1)
        if isinstance(node, ast.Call) and dotted(node.func) == "deepspeed.initialize":
            return [o for k in node.keywords if k.arg == "model" for o in self.origins(k.value, scope, depth + 1)] or [(node, scope, n)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            of = [f for f in self.functions.get(self.real(node.func.id, scope), [])[:4] if f.cls is None]
            if of:
                return [o for f in of for r in f.returns[:WIDTH] for o in self.origins(r, f, depth + 1, n)] or [(node, scope, n)]
        if isinstance(node, ast.IfExp):
            return self.origins(node.body, scope, depth + 1, n) + self.origins(node.orelse, scope, depth + 1, n)
        if isinstance(node, (ast.Tuple, ast.List)) and n is not None and n < len(node.elts):
            return self.origins(node.elts[n], scope, depth + 1)
        return [(node, scope, n)]

    def named_origins(self, node, scope, depth, n):
        at = scope
        while at is not None:
            if node.id in at.assigned or at.has(node.id):
                found = []
                for how, what in (self.reaching(node.id, at, node) if at is scope else at.assigned.get(node.id, []))[:WIDTH]:
                    if how == "value":
                        found += self.origins(what, at, depth + 1, n)
                    elif how == "item":
                        found += self.origins(what[0], at, depth + 1, what[1])
                if not found and at.has(node.id):
                    for call, s, ahead in self.sites(at)[:WIDTH]:
                        given = self.bound(call, s, at, node.id, ahead)
                        if given and given[0] == "value":
                            found += self.origins(given[1], given[2], depth + 1, n)
                return found or [(node, at, n)]
            at = at.parent
        module, original = scope.file.imports.get(node.id, (None, None))
        if module is not None:
            for s in self.scopes:
                if isinstance(s.node, ast.Module) and s.file.stem == module.rsplit(".", 1)[-1] and original in s.assigned:
                    return [o for how, what in s.assigned[original] if how == "value" for o in self.origins(what, s, depth + 1, n)]
        return [(node, scope, n)]

    # The kind of an expression as a loss.

    def kind(self, kind, node, scope, why="", by=()):
        return {"kind": kind, "file": scope.file.path, "line": getattr(node, "lineno", 0), "text": why or text(node)[:60], "by": list(by), "least": list(by)}

    def worse(self, found, node, scope):
        """The kind of several that are added up, or one of which is in force."""
        found = [f for f in found if f is not None]
        if not found:
            return self.doubtful(node, scope)
        worst = max(found, key=lambda f: RANKS[f["kind"]])
        if worst["kind"] == "rows" and not any(f["kind"] == "mean" for f in found):
            return self.together(found, node, scope)
        if worst["kind"] == "rows" or worst["kind"] == "data" and any(f["kind"] == "mean" for f in found):
            worst = dict(worst, kind="unknown", text=worst["text"] if worst["kind"] == "data" else "%s has no mean taken" % worst["text"])
        return dict(worst, by=max((f["by"] for f in found), key=len), least=max((f["least"] for f in found), key=len), sized=any(f.get("sized") for f in found))

    def added(self, parts, node, scope):
        """The kind of the sum of two parts. For a number, or an unknown value, no part is
        searched."""
        whole = self.worse([f for f, _ in parts], node, scope)
        counted = [f for f, of in parts if f["kind"] != "data" and not constant(of)[1]]
        if len(counted) > 1:
            whole = dict(whole, least=min((f["least"] for f in counted), key=len))
        return whole

    def divided(self, whole, by):
        return dict(whole, by=whole["by"] + [by], least=whole["least"] + [by])

    def either(self, found, node, scope):
        """The kind of a loss if one of several is in force, but it is not known which."""
        kinds = {f["kind"] for f in found if f is not None} - {"free"}
        worst = self.worse(found, node, scope)
        if "sum" in kinds and len(kinds) > 1 and worst["kind"] == "sum":
            return self.kind("unknown", node, scope, "it may be a sum, %s" % worst["text"])
        return worst

    def loss(self, node, scope, depth=0, n=None, active=()):
        """The kind of an expression: free of the batch, of each sample by itself, a mean over
        them, a sum …; None if it depends on itself."""
        key = (id(node), id(scope), n)
        if key in self.known:
            return self.known[key]
        if key in active or depth > 60 or self.looks > 20000 or self.nested > 300:
            self.cuts += 1
            return None if key in active else self.doubtful(node, scope)
        self.looks += 1
        self.nested += 1
        cuts = self.cuts
        found = self.expression(node, scope, depth + 1, n, active + (key,))
        self.nested -= 1
        if cuts == self.cuts:
            self.known[key] = found
            self.held.append(node)  # keeps its id
        return found

    def expression(self, node, scope, depth, n, active):
        follow = lambda inner: self.loss(inner, scope, depth, None, active)
        if constant(node)[1] or isinstance(node, (ast.JoinedStr, ast.Constant)):
            return self.free(node, scope)
        if isinstance(node, ast.Name):
            return self.name_loss(node, scope, depth, n, active)
        if isinstance(node, (ast.UnaryOp, ast.Starred)) or type(node).__name__ == "NamedExpr":
            return follow(node.operand if isinstance(node, ast.UnaryOp) else node.value)
        if isinstance(node, ast.IfExp):
            test, found = follow(node.test), self.either([self.loss(node.body, scope, depth, n, active), self.loss(node.orelse, scope, depth, n, active)], node, scope)
            return found if test is None or test["kind"] == "free" else self.doubtful(node.test, scope)
        if isinstance(node, ast.BinOp):
            return self.binary(node, scope, follow)
        if isinstance(node, ast.Compare):
            compared = self.product(node, scope)
            if compared:
                return self.kind("pairs", node, scope, compared)
            if all(isinstance(o, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for o in node.ops):
                return self.free(node, scope)
            return self.together([follow(v) for v in [node.left] + node.comparators], node, scope)
        if isinstance(node, ast.BoolOp):
            return self.together([follow(v) for v in node.values], node, scope)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            if n is not None:
                return follow(node.elts[n]) if n < len(node.elts) else self.doubtful(node, scope)
            return self.as_box([follow(e) for e in node.elts], node, scope)
        if isinstance(node, ast.Dict):
            return self.as_box([follow(v) for v in node.values], node, scope)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            for g in node.generators:
                for test in g.ifs:
                    if follow(test)["kind"] != "free":
                        return self.doubtful(test, scope)
            return self.as_box([follow(node.value if isinstance(node, ast.DictComp) else node.elt)], node, scope)
        if isinstance(node, ast.Call):
            return self.call_loss(node, scope, depth, n, active)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self.part_loss(node, scope, depth, n, active)
        return self.free(node, scope) if isinstance(node, (ast.Lambda, ast.Slice)) else self.doubtful(node, scope)

    def counts(self, node, scope, depth=0):
        """Whether a number is the number of samples, or elements, in a micro batch."""
        if re.search(r"num_items(_in_batch)?$", last(node)):
            return True
        if isinstance(node, ast.IfExp):
            return self.counts(node.body, scope, depth) and self.counts(node.orelse, scope, depth)
        if isinstance(node, ast.Call) and last(node.func) in ("len", "float", "int", "max") and node.args:
            return last(node.func) == "len" or self.counts(node.args[0], scope, depth)
        if isinstance(node, ast.Call) and last(node.func) in ("size", "numel", "__len__"):
            return True
        if isinstance(node, ast.Subscript) and last(node.value) == "shape":
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.counts(node.left, scope, depth) or self.counts(node.right, scope, depth)
        if isinstance(node, ast.Name) and depth < 4:
            given = [what for how, what in scope.assigned.get(node.id, []) if how == "value"]
            return any(self.counts(g, scope, depth + 1) for g in given) or bool(SIZE.match(node.id))
        return bool(SIZE.match(last(node)))

    def binary(self, node, scope, follow):
        by = node.right
        if isinstance(node.op, ast.Div) and isinstance(by, ast.Call) and last(by.func) == "min" and len(by.args) == 2 and re.match(r"len\(.* // .* \* ", text(by.args[1])):
            node = self.operation(node, node.left, by.args[0], ast.Div)  # the last step of an epoch may have fewer micro batches
        self.paths(scope).setdefault(id(node.left), self.path(node, scope))
        left, right = follow(node.left), follow(node.right)
        if left is None or right is None:
            return left or right
        compared = self.product(node, scope)
        if compared:
            return self.kind("pairs", node, scope, compared)
        lossy = lambda f: f["kind"] in LOSSY
        if not lossy(left) and not lossy(right):
            if isinstance(node.op, ast.MatMult):
                return self.multiplied(node, left, right, scope)
            if (left.get("count") or right.get("count")) and "rows" not in (left["kind"], right["kind"]):
                return self.count(node, scope)
            found = self.together([left, right], node, scope)
            return self.divided(found, plain(self.value(node.right, scope))) if found["kind"] == "free" and isinstance(node.op, ast.Div) and not constant(node.right)[1] else found
        if RANKS["pairs"] in (RANKS[left["kind"]], RANKS[right["kind"]]):
            return self.worse([left, right], node, scope)
        if isinstance(node.op, (ast.Add, ast.Sub)) and "rows" in (left["kind"], right["kind"]):
            return self.doubtful(node, scope) if {left["kind"], right["kind"]} <= {"rows", "mean", "sum"} else left if lossy(left) else right
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return self.added([(left, node.left), (right, node.right)], node, scope)
        if isinstance(node.op, (ast.Div, ast.Mult)) and lossy(left) != lossy(right):
            whole, other, factor = (left, right, node.right) if lossy(left) else (right, left, node.left)
            if isinstance(node.op, ast.Div) and whole is right:
                return self.kind("unknown", node, scope, "%s is no plain mean" % text(node)[:40])
            if isinstance(node.op, ast.Div) and whole["kind"] == "sum" and self.counts(factor, scope):
                return dict(whole, kind="mean", text=text(node)[:60])
            inverse = isinstance(node.op, ast.Mult) and isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Div) and constant(factor.left)[1]
            divides, factor = isinstance(node.op, ast.Div) or inverse, factor.right if inverse else factor
            if other["kind"] == "free" or divides and other.get("count"):
                return dict(self.divided(whole, plain(self.value(factor, scope))), sized=other["kind"] != "free" or bool(whole.get("sized"))) if divides else whole
            if whole["kind"] in ("masked", "unknown"):
                return whole
            if divides:
                return self.kind("masked", node, scope, "it is divided by %s, which differs from one micro batch to the next" % text(factor)[:40])
            if other.get("count"):
                return self.doubtful(factor, scope, "%s follows from the size of a micro batch" % text(factor)[:40])
            return other if other["kind"] == "data" else self.kind("unknown", node, scope, "%s is no plain mean" % text(node)[:40])
        if isinstance(node.op, ast.Div) and left["kind"] == "sum":
            return self.kind("masked", node, scope, "it is divided by %s of each micro batch" % text(node.right)[:40])
        return self.kind("unknown", node, scope, "%s is no plain mean" % text(node)[:40])

    def method(self, call):
        """Whether a call is of a method, rather than a module's function."""
        full = dotted(call.func)
        return isinstance(call.func, ast.Attribute) and ("()" in full or "?" in full or full.split(".")[0] not in ("torch", "F", "nn", "np"))

    def operation(self, call, left, right, op):
        """Turns a call of div or mul into the corresponding quotient or product."""
        made = ast.copy_location(ast.BinOp(left=left, op=op(), right=right), call)
        self.held.append(made)  # keeps its id
        return made

    def over(self, call):
        """The dimensions of a reduction: all, the first, or other ones."""
        words = {k.arg: k.value for k in call.keywords}
        method = self.method(call)
        given = words.get("dim", words.get("axis", (call.args if method else call.args[1:] or [None])[0] if call.args else None))
        if given is None:
            return "all"
        dims = [constant(d)[0] for d in (given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given])]
        return "first" if 0 in dims else "other"

    def call_loss(self, node, scope, depth, n, active):
        name, method = last(node.func), self.method(node)
        follow = lambda inner, n=None: self.loss(inner, scope, depth, n, active)
        of = node.func.value if method else node.args[0] if node.args else None
        args = node.args if method else node.args[1:]
        defined = name in self.functions or name in self.classes
        if name in ("sum", "norm", "mean", "stack", "cat") and any(isinstance(c, ast.Call) and last(c.func) in ("parameters", "named_parameters") for c in walk(node)):
            reads = any(isinstance(c, ast.Attribute) and c.attr == "grad" for c in walk(node))
            return self.doubtful(node, scope) if reads else self.free(node, scope)
        if name in FUNCTIONAL and not defined:
            return self.criterion(node, node, scope, name, follow)
        compared = self.product(node, scope) if not defined else ""
        if compared:
            return self.kind("pairs", node, scope, compared)
        if name in ("mean", "sum", "nanmean", "nansum") and of is not None and (method or isinstance(node.func, ast.Attribute)) and not defined:
            return self.reduced(node, of, scope, follow)
        if name in ("div", "divide", "true_divide", "mul", "multiply") and of is not None and len(args) == 1 and not defined:
            return self.binary(self.operation(node, of, args[0], ast.Mult if "mul" in name else ast.Div), scope, follow)
        if name in SAME | {"scale", "detach", "tqdm"} and of is not None and not defined:
            return self.loss(node.args[0] if name in ("scale", "prepare") and node.args else of, scope, depth, n, active)
        known = self.through(node, scope, depth, n, active)
        if known is not None:
            draws = re.search(r"batch$", name) and known["kind"] in ("free", "data", "rows") and all(g is None or g["kind"] == "free" or g.get("count") for g in map(follow, node.args))
            return self.rows(node, scope, box=True) if draws else known
        given = [follow(a) for a in ([of] if of is not None else []) + list(args) + [k.value for k in node.keywords]]
        if isinstance(node.func, ast.Name) and name in BUILTINS | {"sorted", "reversed", "iter", "next"}:
            return self.builtin(node, name, scope, given, follow)
        worst = max((g for g in given if g is not None), key=lambda g: RANKS[g["kind"]], default=None)
        if worst is None or worst["kind"] == "free":
            if re.search(r"batch|draw|sample|fetch|load", name, re.I):
                return self.rows(node, scope, box=True)
            return self.free(node, scope) if isinstance(node.func, ast.Attribute) or worst is None else self.unfollowed(node, scope, worst)
        return self.operated(node, name, of, args, given, worst, scope, follow)

    def operated(self, node, name, of, args, given, worst, scope, follow):
        """The result of an operation on values that are not free of the batch."""
        first = given[0]
        if self.is_layer(node):
            return self.layered(node, worst, scope, "")
        if self.is_draw(node) and worst["kind"] in ("rows", "data"):
            return self.rows(node, scope) if worst["kind"] == "rows" or worst.get("count") else worst
        if name in ("size", "dim", "numel", "__len__", "get_device", "item", "tolist"):
            if name == "size" and args and first.get("at") is not None and constant(args[0])[1]:
                return self.count(node, scope) if constant(args[0])[0] == first["at"] else self.free(node, scope)
            return self.free(node, scope) if name in ("dim", "get_device") else self.count(node, scope) if name in ("size", "numel", "__len__") else self.doubtful(node, scope, "%s is a number of each micro batch" % text(node)[:40])
        if worst["kind"] == "data" and worst.get("count") and name in ("zeros", "ones", "full", "empty", "arange", "new_zeros", "new_ones", "new_full", "tensor"):
            return self.rows(node, scope) if name != "arange" else self.doubtful(node, scope)
        if worst["kind"] in LOSSY and worst["kind"] not in ("mean", "sum"):
            return worst
        if name == "grad" and dotted(node.func).endswith("autograd.grad") and first["kind"] in ("rows", "sum") and len(given) > 1:
            return dict(given[1], box=True)
        if worst["kind"] in ("mean", "sum"):
            if name in ("stack", "cat", "dict", "tuple", "squeeze", "view", "reshape", "flatten", "cpu", "unsqueeze") or worst.get("box") and name in ("values", "items"):
                return worst
            return self.kind("unknown", node, scope, "%s is no plain mean" % text(node)[:40])
        if name in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "swapaxes", "swapdims", "t", "movedim", "permute", "repeat", "expand") and first is not None:
            if first["kind"] == "free":
                return self.free(node, scope)
            if name in ("repeat", "expand"):
                once = constant(args[0]) if args else (None, False)
                return dict(first) if first["kind"] == "rows" and first["at"] == 0 and (once[0] in (1, -1) or name == "expand") else self.doubtful(node, scope)
            return (self.shaped(node, name, first, args, scope, follow) if first["kind"] == "rows" else None) or (first if first["kind"] == "data" else self.doubtful(node, scope))
        if worst["kind"] == "data":
            return dict(worst, count=False)
        if name in ("max", "min") and args and given[1] is not None and given[1]["kind"] == "rows":
            name = "maximum"
        if name in ALONG and first is not None and first["kind"] == "rows":
            found = self.along(node, name, first, args, scope) or self.doubtful(node, scope)
            return dict(found, rank=max(g.get("rank", 1) for g in given)) if name in ("gather", "take_along_dim") and found["kind"] == "rows" else found
        if name in ("cat", "concat", "concatenate", "stack"):
            return self.joins(node, name, node.args, scope, worst) or self.doubtful(node, scope)
        if name in ("matmul", "mm", "bmm", "linear", "baddbmm") and len(given) > 1:
            if name == "bmm":
                given = [dict(g, rank=3) if g["kind"] == "rows" and g["at"] == 0 else g for g in given]
            return self.multiplied(node, given[0], given[1], scope)
        if name == "einsum":
            return self.summation(node, scope, given[1:]) or self.doubtful(node, scope)
        if name == "scaled_dot_product_attention":
            return worst if all(g["kind"] == "free" or g["rank"] > 2 and g["at"] == 0 for g in given) else self.doubtful(node, scope)
        if name in ("items", "values", "get", "pop", "copy", "shape"):
            return worst
        if name in ELEMENTWISE and name not in self.functions:
            return self.together(given, node, scope)
        return self.unfollowed(node, scope, worst)

    def unfollowed(self, node, scope, worst):
        """A call of something that is not defined in the job: a layer or a model, or doubtful."""
        return self.layered(node, worst, scope, "") if self.is_layer(node) else self.doubtful(node, scope)

    def is_layer(self, node):
        """Whether the called object is a layer, or a model, by its name."""
        f, full = node.func, dotted(node.func).split(".")
        if full[0] in ("torch", "F", "nn", "np") or re.search(r"loss|criterion|objective|dist|metric", last(f), re.I):
            return False
        if full[0] in ("self", "model") and not self.functions.get(last(f)) and (len(full) < 3 or MODEL.search(".".join(full))):
            return True
        return bool(MODEL.search(last(f) or full[-1]) or isinstance(f, ast.Attribute) and last(f) not in ELEMENTWISE and last(f) not in ALONG and last(f) not in ("view", "reshape") and MODEL.search(text(f.value)) and not isinstance(f.value, ast.Call))

    def layered(self, node, worst, scope, kind, made=None):
        """The result of a layer, or a model, for samples."""
        if worst is None or worst["kind"] == "free":
            return self.free(node, scope)
        if worst["kind"] == "pairs":
            return dict(self.doubtful(node, scope, "%s may not work on each sample by itself" % worst["text"][:50]), file=worst["file"], line=worst["line"])
        if worst["kind"] != "rows":
            return worst
        words = {k.arg: constant(k.value)[0] for k in made.keywords} if made is not None else {}
        if kind in RECURRENT:
            at = 0 if words.get("batch_first") is True else 1
            return self.rows(node, scope, at, 3, box=True) if worst["at"] == at else self.doubtful(node, scope)
        if worst["at"] > 0 and not re.match(r"Linear|Dropout|ReLU|GELU|Embedding|LayerNorm|Tanh|Sigmoid|SiLU|Identity", kind):
            return self.doubtful(node, scope)
        if kind in ("Softmax", "LogSoftmax", "Flatten", "Unflatten") and made is not None:
            first = words.get("dim", words.get("start_dim", constant(made.args[0])[0] if made.args else 1))
            if first in (0, None) or kind.endswith("Softmax") and first == -2:
                return self.doubtful(node, scope)
        return self.rows(node, scope, worst["at"], worst["rank"], box=not kind)

    def builtin(self, node, name, scope, given, follow):
        """The result of a built-in function of Python."""
        worst = max((g for g in given if g is not None), key=lambda g: RANKS[g["kind"]], default=None)
        if name in ("isinstance", "hasattr", "str", "print") or worst is None:
            return self.free(node, scope)
        if name == "next":
            return self.next_of(node, scope)
        if worst["kind"] == "free":
            loads = name == "len" and re.search(r"load|(^|_)dl$", text(node.args[0]), re.I)
            return self.count(node, scope) if loads else worst
        if name == "len":
            return self.free(node, scope) if worst.get("box") and worst["kind"] != "rows" else self.count(node, scope)
        if name in ("zip", "enumerate", "list", "tuple", "sorted", "reversed", "iter", "dict", "getattr"):
            return worst
        if name == "sum" and (worst.get("box") or worst["kind"] in LOSSY):
            return dict(worst, box=False)
        if worst["kind"] in ("mean", "sum"):
            return self.kind("unknown", node, scope, "%s is no plain mean" % text(node)[:40])
        return self.count(node, scope) if worst.get("count") else worst if worst["kind"] != "rows" else self.doubtful(node, scope)

    def next_of(self, node, scope):
        """The values of an iterator: samples, except for one over batches that keep their size."""
        for made, at, _ in self.origins(node.args[0], scope):
            for call in [c for c in walk(made) if isinstance(c, ast.Call) and last(c.func).endswith("DataLoader")]:
                size = {k.arg: k.value for k in call.keywords}.get("batch_size")
                if size is not None and constant(size)[1]:
                    return self.doubtful(call, at, "batches of %s, whatever the micro batch is" % text(size))
        return self.rows(node, scope, box=True)

    def reduced(self, node, of, scope, follow):
        """A mean or a sum of a value."""
        inner, over = follow(of), self.over(node)
        if inner is None or inner["kind"] == "free":
            return inner
        if inner["kind"] in ("mean", "sum"):
            return dict(inner, box=False)  # of one number for each of some heads
        if inner["kind"] != "rows":
            return inner
        if last(node.func).startswith("nan"):
            return self.kind("masked", node, scope, "it is taken over some of the elements, %s" % text(node)[:40])
        words = {k.arg: k.value for k in node.keywords}
        if over != "all":
            args = node.args if self.method(node) else node.args[1:]
            given = words.get("dim", words.get("axis", args[0] if args else None))
            dims = [constant(d)[0] for d in (given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given])]
            if isinstance(given, ast.Call) or inner["at"] not in dims:
                return self.along(node, last(node.func), inner, args, scope) or self.doubtful(node, scope)
        return self.kind("mean" if "mean" in last(node.func) else "sum", node, scope)

    def criterion(self, call, made, scope, name, follow):
        """A loss of PyTorch: call computes it, made has its options."""
        words, spoken = {k.arg: k.value for k in made.keywords}, {k.arg: k.value for k in call.keywords}
        given = [follow(a) for a in call.args + [v for k, v in spoken.items() if k is not None]]
        target = call.args[1] if len(call.args) > 1 else spoken.get("target")
        if target is not None and re.search(r"cross_?entropy|nll", name, re.I) and self.numbered(target, scope):
            return self.kind("pairs", call, scope, "the labels are the places in the micro batch")
        reduction = words.get("reduction")
        value, known = constant(reduction) if reduction is not None else ("mean", True)
        if not known:
            looked = self.value(reduction, scope)
            value, known = (looked or {}).get("const"), "const" in (looked or {})
        if "size_average" in words or "reduce" in words or not known:
            return self.kind("unknown", call, scope, "its reduction is not known")
        worst = max((g for g in given if g is not None), key=lambda g: RANKS[g["kind"]], default=None)
        if worst is not None and worst["kind"] == "pairs" or value != "sum" and worst is not None and worst["kind"] in ("data", "masked", "unknown"):
            return dict(worst, count=False)
        if value == "sum":
            return self.kind("sum", call, scope, 'reduction="sum"')
        positional = made.args[2:] if made is call else made.args
        if re.search(r"cross_?entropy|nll", name, re.I) and not re.search("binary|Gaussian|Poisson|gaussian|poisson", name):
            if "ignore_index" in words:
                return self.kind("masked", call, scope, "the mean leaves out ignore_index")
            if "weight" in words and constant(words["weight"]) != (None, True) or positional and name in ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss") and constant(positional[0]) != (None, True):
                return self.kind("masked", call, scope, "the mean is weighted by classes")
        if value == "none":
            return self.rows(call, scope)
        if worst is None or worst["kind"] == "free":
            return self.free(call, scope)
        if worst["kind"] in ("mean", "sum"):
            return self.kind("unknown", call, scope, "%s is no plain mean" % text(call)[:40])
        places = {g["at"] for g in given if g is not None and g["kind"] == "rows"}
        if len(places) > 1 and "ctc" not in name.lower():
            return self.doubtful(call, scope)
        return self.kind("mean", call, scope, text(made.func)[:60])

    def through(self, node, scope, depth, n, active):
        """The result of a function, or a class, of the job, or of a criterion or a model; None if
        the called object is not known."""
        name, found = last(node.func), []
        if isinstance(node.func, ast.Name):
            for one in self.looped(node.func, scope):
                made = ast.copy_location(ast.Call(func=one, args=node.args, keywords=node.keywords), node)
                self.held.append(made)
                found.append(self.loss(made, scope, depth, n, active))
            if found:
                return self.either(found, node, scope)
            name = self.real(name, scope)
        functions = [f for f in self.functions.get(name, []) if (f.cls is None or isinstance(node.func, ast.Attribute)) and not abstract(f.node)]
        if functions and isinstance(node.func, ast.Attribute) and dotted(node.func.value) == "self":
            functions = [f for f in functions if f.cls == scope.cls] or functions
        if functions and name not in ("forward", "__call__", "backward"):
            for f in functions[:4]:
                found.append(self.returned(f, n, depth, active))
                if self.lossy(found[-1], name):
                    self.scan(f)
            return self.either(found, node, scope)
        given = lambda: max(([self.loss(a, scope, depth, None, active) for a in node.args + [k.value for k in node.keywords]] or [None]), key=lambda g: RANKS[g["kind"]] if g else -1)
        called = node.func.value if name == "forward" and isinstance(node.func, ast.Attribute) else node.func
        for made, at, _ in self.origins(called, scope):
            if not isinstance(made, ast.Call):
                continue
            kind = last(made.func)
            kind = self.real(kind, at) if isinstance(made.func, ast.Name) else kind
            if kind in CRITERIA and kind not in self.classes:
                found.append(self.criterion(node, made, scope, kind, lambda inner: self.loss(inner, scope, depth, None, active)))
            for c in self.classes.get(kind, [])[:2]:
                forward = c["methods"].get("forward") or c["methods"].get("__call__")
                if forward is not None:
                    one, to = self.returned(forward, n, depth, active), given()
                    if self.lossy(one, kind) and self.plain_loss(c, kind):
                        self.scan(forward)
                    one = dict(one, box=True) if one is not None and one["kind"] == "rows" and forward.returns and not isinstance(forward.returns[0], (ast.BinOp, ast.Call, ast.Name)) else one
                    found.append(one if to is None or to["kind"] == "free" or to["kind"] == "rows" and to["at"] == 0 else self.layered(node, to, scope, kind, made))
            if kind in self.classes:
                continue
            if PER_SAMPLE.search(dotted(made.func)) and any(k.arg == "labels" for k in node.keywords):
                found.append(self.kind("mean", node, scope, dotted(made.func).split(".")[0]))
            elif re.search(r"For[A-Z]\w+$|^Auto", dotted(made.func).split(".")[0]) and kind in ("from_pretrained", "from_config") and any(k.arg == "labels" for k in node.keywords):
                found.append(self.library(node, dotted(made.func).split(".")[0], scope))
            elif kind not in CRITERIA and (dotted(made.func).startswith(("nn.", "torch.nn.")) and kind != "Parameter" or kind in RECURRENT or MODEL.search(kind) and not re.search("loss|criterion", kind, re.I)):
                one = self.layered(node, given(), scope, kind, made)
                if kind == "Embedding" and one["kind"] == "rows":
                    one = dict(one, rank=one["rank"] + 1)
                found.append(dict(one, box=False) if kind in RECURRENT and n is not None else one)
        if isinstance(node.func, ast.Call) and last(node.func.func) in CRITERIA:
            found.append(self.criterion(node, node.func, scope, last(node.func.func), lambda inner: self.loss(inner, scope, depth, None, active)))
        return self.either(found, node, scope) if any(found) else None

    def lossy(self, one, name):
        """Whether the result of a function, or its name, is that of a loss."""
        return one is not None and one["kind"] in LOSSY or bool(re.search(r"loss|criterion|objective", name, re.I))

    def looped(self, func, scope):
        """The functions that a name stands for in a loop over a few of them."""
        found = []
        for how, of in scope.assigned.get(func.id, []):
            target = getattr(getattr(of, "gpurun_up", None), "target", None) if how == "loop" else None
            if isinstance(of, (ast.List, ast.Tuple)) and target is not None:
                parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                mine = next((i for i, p in enumerate(parts) if last(p) == func.id), 0)
                found += [e.elts[mine] if isinstance(e, (ast.Tuple, ast.List)) and mine < len(e.elts) else e for e in of.elts]
        return [f for f in found if isinstance(f, (ast.Name, ast.Attribute))]

    def library(self, call, name, scope):
        words = {k.arg: text(k.value) for k in call.keywords if k.arg}
        if "CausalLM" in name and words.get("labels") and words.get("labels") == words.get("input_ids", text(call.args[0]) if call.args else ""):
            return self.kind("mean", call, scope, name)
        return self.kind("masked", call, scope, "the mean of %s leaves out labels of -100" % name)

    def plain_loss(self, c, name):
        """Whether a class computes a loss, rather than being a model."""
        if re.search(r"loss|criterion|objective", name, re.I):
            return True
        return not any(isinstance(call, ast.Call) and dotted(call.func).startswith(("nn.", "torch.nn.")) and last(call.func) not in CRITERIA | {"Parameter", "Module"}
                       for m in c["methods"].values() for call in walk(m.node))

    def returned(self, f, n, depth, active):
        found = []
        if isinstance(f.node, ast.Lambda):
            return self.loss(f.node.body, f, depth, n, active)
        for r in f.returns[:WIDTH]:
            if isinstance(r, ast.Dict):
                r = next((v for k, v in zip(r.keys, r.values) if k is not None and constant(k)[0] == "loss"), r)
            elif isinstance(r, ast.Call) and any(k.arg == "loss" for k in r.keywords):
                r = next(k.value for k in r.keywords if k.arg == "loss")
            elif isinstance(r, ast.Call) and n is None and "loss" in self.field_names(r, f)[:len(r.args)]:
                r = r.args[self.field_names(r, f).index("loss")]
            found.append(self.loss(r, f, depth, n, active))
            tests = [m.test for _, _, m in self.path(r, f) if isinstance(m, ast.If)]
            found += [self.doubtful(t, f, "if %s" % text(t)[:50]) for t in tests if (self.loss(t, f, depth, None, active) or {"kind": "free"})["kind"] != "free"]
        found = [x for x in found if x and (x["kind"] != "rows" or x.get("box"))] or found
        return self.either(found, f.node, f)

    def field_names(self, call, scope):
        """The names of the fields of a named tuple, or a class of fields, in their order."""
        name = self.real(last(call.func), scope) if isinstance(call.func, ast.Name) else last(call.func)
        for made, _, _ in self.origins(call.func, scope):
            if isinstance(made, ast.Call) and last(made.func) == "namedtuple" and len(made.args) > 1:
                names = made.args[1]
                return [constant(e)[0] for e in names.elts] if isinstance(names, (ast.List, ast.Tuple)) else str(constant(names)[0]).replace(",", " ").split()
        return [field for c in self.classes.get(name, [])[:1] for field in c["fields"]]

    def keyed(self, node, key, scope, depth, active):
        """The value that a dictionary, or the result of a function, has under a key:
        outputs["loss"], outputs[0]."""
        found = []
        for made, at, _ in self.origins(node.value, scope):
            places = [(made, at)]
            if isinstance(made, ast.Call):
                if key == "loss" or type(key) is int:
                    one = self.through(made, at, depth, key if type(key) is int else None, active)
                    if key == "loss" and one is not None and one["kind"] != "rows":
                        found.append(one)
                        continue
                name = self.real(last(made.func), at) if isinstance(made.func, ast.Name) else last(made.func)
                places = [(r, f) for f in self.functions.get(name, [])[:4] for r in f.returns[:WIDTH]]
                places += [(r, c["methods"]["forward"]) for m, a, _ in self.origins(made.func, at) if isinstance(m, ast.Call) for c in self.classes.get(last(m.func), [])[:2] if "forward" in c["methods"] for r in c["methods"]["forward"].returns]
            for of, s in places:
                if isinstance(of, ast.Dict) and isinstance(key, str):
                    found += [self.loss(v, s, depth, None, active) for k, v in zip(of.keys, of.values) if k is not None and constant(k)[0] == key]
                elif isinstance(of, ast.Tuple) and type(key) is int and key < len(of.elts):
                    found.append(self.loss(of.elts[key], s, depth, None, active))
                elif isinstance(of, ast.Call) and isinstance(key, str):
                    found += [self.loss(k.value, s, depth, None, active) for k in of.keywords if k.arg == key]
        return found

    def part_loss(self, node, scope, depth, n, active):
        """An attribute or an item."""
        follow = lambda inner: self.loss(inner, scope, depth, None, active)
        key, known = (node.attr, True) if isinstance(node, ast.Attribute) else constant(index(node))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return self.own_attribute(node, scope, depth, n, active)
        if known and isinstance(key, str) and self.is_batch(key):
            return self.count(node, scope)
        if isinstance(node, ast.Attribute) and CONFIG.search(last(node.value) or ""):
            return self.free(node, scope)
        if known and (isinstance(key, str) or type(key) is int):
            found = self.keyed(node, key, scope, depth, active)
            if any(found):
                return self.worse(found, node, scope)
            if key == "loss":
                stored = [self.loss(v, s, depth, None, active) for v, s, owner in self.stores.get("loss", [])[:WIDTH] if owner == text(node.value)]
                if stored:
                    return self.worse(stored, node, scope)
        shape = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(shape, ast.Attribute) and shape.attr == "shape" or isinstance(shape, ast.Call) and last(shape.func) == "size" and not shape.args:
            of = follow(shape.value if isinstance(shape, ast.Attribute) else shape.func.value)
            place = n if shape is node else constant(index(node))[0]
            if of is None or of["kind"] == "free" or of["kind"] == "rows" and place is not None and place != of["at"] or isinstance(node, ast.Subscript) and isinstance(index(node), ast.Slice):
                return self.free(node, scope)
            return self.count(node, scope)
        whole = follow(node.value)
        if whole is None:
            return None
        if isinstance(node, ast.Attribute):
            return self.attribute_of(node, key, whole, scope)
        inner = index(node)
        if whole["kind"] == "free":
            ends = [b for b in (inner.lower, inner.upper, inner.step) if b is not None] if isinstance(inner, ast.Slice) else inner.elts if isinstance(inner, ast.Tuple) else [inner]
            found = [f for f in (follow(e) for e in ends if not isinstance(e, ast.Slice)) if f is not None and f["kind"] != "free"]
            if not found:
                return whole
            if all(f["kind"] == "rows" or f.get("counter") for f in found) or any(f.get("counter") for f in found) and all(f.get("counter") or f.get("count") for f in found):
                return self.rows(node, scope)
            return next((f for f in found if f["kind"] != "rows"))
        if whole["kind"] == "rows":
            return self.subscripted(node, whole, scope, follow) or self.doubtful(node, scope)
        return dict(whole, box=False) if whole.get("box") and whole["kind"] in ("mean", "sum") else whole

    def attribute_of(self, node, key, whole, scope):
        if key == "grad":
            return self.doubtful(node, scope)
        if key in ("device", "dtype", "ndim", "is_cuda", "requires_grad", "training", "layout"):
            return self.free(node, scope)
        if whole["kind"] == "free":
            for made, at, _ in self.origins(node.value, scope):
                cls = self.real(last(made.func), at) if isinstance(made, ast.Call) else ""
                if key in self.kept(cls):
                    return self.doubtful(self.kept(cls)[key], scope, "%s.%s is kept from one micro batch to the next" % (cls, key))
            return self.free(node, scope)
        if whole["kind"] == "rows" and key == "T":
            return dict(whole, at=1 - whole["at"], rank=2) if whole["at"] < 2 else self.doubtful(node, scope)
        return whole

    def kept(self, cls):
        """The attributes of a class that its methods change after it is built."""
        return self.once_known(("kept", cls), lambda: self.kept_by(cls)) if cls in self.classes else {}

    def kept_by(self, cls):
        found = {}
        for scope in [s for s in self.live if s.cls == cls and not BUILDS.match(s.name or "")]:
            for name, changes in self.changes(scope).items():
                for s, target, value in changes:
                    if name.startswith("self.") and (target is not None or value.func.attr.endswith("_") or value.func.attr in ("append", "extend", "update", "pop", "appendleft")):
                        found.setdefault(name.split(".")[1], s)
            for name, stores in self.stores.items():
                found.update({name: v for v, s, owner in stores if s is scope and owner == "self" and name not in found})
        return found

    def own_attribute(self, node, scope, depth, n, active):
        """An attribute of self: as it was built, as this method made it before, or doubtful."""
        here = [v for v, s, owner in self.stores.get(node.attr, []) if owner == "self" and s is scope and getattr(v, "end_lineno", 0) < node.lineno and not BUILDS.match(scope.name or "")]
        if here:
            return self.either([self.loss(v, scope, depth, n, active) for v in here], node, scope)
        changed = self.kept(scope.cls).get(node.attr)
        if changed is not None and node.attr not in ("training", "model", "optimizer", "device"):
            return self.doubtful(changed, scope, "self.%s is kept from one micro batch to the next" % node.attr)
        return self.count(node, scope) if self.is_batch(node.attr) else self.free(node, scope)

    # Comparisons of the samples of a micro batch with each other.

    def numbered(self, node, scope, depth=0):
        """Whether labels are the numbers of the samples: arange(len(batch))."""
        for made, at, _ in self.origins(node, scope):
            calls = [c for c in walk(made) if isinstance(c, ast.Call) and last(c.func) == "arange"]
            if any(len(c.args) == 1 for c in calls):
                return True
        return False

    def transposed(self, node):
        """The operand of a matrix transposition; None for other expressions. A transposition of
        the last two of more dimensions, as in attention, does not count."""
        if isinstance(node, ast.Attribute) and node.attr == "T":
            return node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            dims = [constant(a)[0] for a in node.args]
            if node.func.attr == "t" and not dims or node.func.attr in ("transpose", "permute", "swapaxes") and dims in ([0, 1], [1, 0]):
                return node.func.value
            if node.func.attr in ("t", "transpose") and dotted(node.func.value) == "torch" and node.args and dims[1:] in ([], [0, 1], [1, 0]):
                return node.args[0]
            if node.func.attr in SAME | {"detach"}:
                return self.transposed(node.func.value)
        return None

    def samples(self, node, scope):
        """Whether a tensor may have the samples of a batch as rows: the weight of a module, and a filter's window, have
        none."""
        if any(isinstance(form, ast.Attribute) and form.attr == "weight" or re.search(r"window|kernel|gauss", text(form), re.I) for form in self.one_step(node, scope)):
            return False
        return self.loss(node, scope, 0, None, ())["kind"] != "free"

    def one_step(self, node, scope):
        """The expression of a name, in addition to the name."""
        if isinstance(node, ast.Name) and node.id in scope.assigned:
            return [node] + [w for how, w in self.reaching(node.id, scope, node) if how == "value"][:4]
        return [node]

    def product(self, node, scope):
        """How an expression compares samples with each other; empty if it does not."""
        pair = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            pair = node.left, node.right
        name = last(node.func) if isinstance(node, ast.Call) else ""
        if name in ("mm", "matmul", "addmm"):
            args = node.args[1:] if name == "addmm" else node.args
            pair = (args[0], args[1]) if len(args) == 2 else (node.func.value, args[0]) if len(args) == 1 and isinstance(node.func, ast.Attribute) else None
        if pair:
            for a, b in (pair, pair[::-1]):
                for form in self.one_step(b, scope):
                    inner = self.transposed(form)
                    if inner is not None and self.samples(inner, scope) and self.samples(a, scope):
                        return text(node)[:60]
        if name in ("inner", "linear", "cdist", "pdist") and name not in self.functions and dotted(node.func).split(".")[0] in ("torch", "F", "nn") and node.args:
            if name == "pdist" or len(node.args) > 1 and all(self.samples(a, scope) for a in node.args[:2]) and not self.by_sample(scope):
                return text(node)[:60]
        if name == "einsum" and node.args:
            letters = re.match(r"^\s*([a-z]+)\s*,\s*([a-z]+)\s*->\s*([a-z]*)\s*$", str(constant(node.args[0])[0]), re.I)
            if letters and len(node.args) == 3 and all(self.samples(a, scope) for a in node.args[1:]):
                a, b, out = letters.group(1), letters.group(2), letters.group(3)
                if a[0] != b[0] and len(a) > 1 and len(b) > 1 and a[0] in out and b[0] in out and a[0] not in b and b[0] not in a or a[0] == b[0] and a[0] not in out and len(out) > 1:
                    return text(node)[:60]
        return self.broadcast(node, name, scope) or self.statistic(node, name, scope)

    def by_sample(self, scope):
        """Whether a function takes the parts of each sample out of what it compares, as a matcher of boxes does: it
        splits by a list of lengths."""
        def is_lengths(node):
            return isinstance(node, ast.ListComp) and isinstance(node.elt, ast.Call) and last(node.elt.func) == "len"

        lengths = {name for name, values in scope.assigned.items() for _, value in values if is_lengths(value)}
        return any(last(c.func) == "split" and any(isinstance(a, ast.Name) and a.id in lengths for a in c.args) for c in scope.calls)

    def broadcast(self, node, name, scope):
        """A comparison of each sample with each other one: x[:, None] - x[None]."""
        sides = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Mult)):
            sides = node.left, node.right
        elif isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = node.left, node.comparators[0]
        elif name in ("cosine_similarity", "eq", "pairwise_distance") and len(node.args) > 1:
            sides = node.args[0], node.args[1]
        if sides and {self.widened(s) for s in sides} == {0, 1} and all(self.samples(s, scope) and not self.counts_up(s, scope) for s in sides):
            return text(node)[:60]
        return ""

    def counts_up(self, node, scope):
        """Whether a widened tensor has numbers in order, as the positions that a mask compares with lengths."""
        base = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node.value if isinstance(node, ast.Subscript) else node
        return any(isinstance(one, ast.Call) and last(one.func) in ("arange", "range", "linspace") for one in self.one_step(base, scope))

    def widened(self, node):
        """The position, among the first two dimensions, at which one is added."""
        if isinstance(node, ast.Call) and last(node.func) == "unsqueeze":
            return constant((node.args or [None])[-1])[0]
        if isinstance(node, ast.Subscript):
            inner = index(node)
            parts = [constant(p) for p in (inner.elts if isinstance(inner, ast.Tuple) else [inner])]
            if parts[0] == (None, True):
                return 0
            if len(parts) > 1 and parts[1] == (None, True) and isinstance(inner.elts[0], ast.Slice):
                return 1
        return None

    def statistic(self, node, name, scope):
        """Statistics over the samples of a micro batch."""
        if name in ("std", "var", "std_mean", "var_mean", "cov", "corrcoef") and (isinstance(node.func, ast.Attribute)):
            if name in ("cov", "corrcoef") or self.over(node) == "first":
                return text(node)[:60]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Call) and last(node.right.func) == "mean" and self.over(node.right) == "first":
            return text(node)[:60]
        if name in ("all_gather", "concat_all_gather", "all_gather_with_grad", "gather_features", "all_gather_into_tensor", "GatherLayer") or isinstance(node, ast.Call) and re.search(r"Gather\w*\.apply$", dotted(node.func)):
            return "%s gathers the samples of all ranks" % text(node.func)
        return ""

    def scan(self, f):
        """Searches a whole function that computes a loss."""
        if id(f) in self.scanned:
            return
        self.scanned.add(id(f))
        for node in walk(f.node):
            if isinstance(node, (ast.BinOp, ast.Call, ast.Compare)) and len(self.compared) < 20:
                how = self.product(node, f)
                if how:
                    self.compared.setdefault((f.file.path, node.lineno), how)
                name = last(node.func) if isinstance(node, ast.Call) else ""
                if name and re.search(r"cross_?entropy|nll_loss", name, re.I) and len(node.args) > 1 and self.numbered(node.args[1], f):
                    self.compared.setdefault((f.file.path, node.lineno), "the labels are the places in the micro batch")
                if isinstance(node, ast.Call):
                    self.scan_called(node, f)

    def scan_called(self, node, f):
        """Searches what a function that computes a loss calls in the job: functions, and methods
        of the same class."""
        for inner in self.functions.get(last(node.func), [])[:4]:
            mine = inner.cls is None and isinstance(node.func, ast.Name) or inner.cls == f.cls and dotted(node.func).startswith("self.")
            if mine and last(node.func) not in ("forward", "__init__"):
                self.scan(inner)

    # Changes by each micro batch other than to the gradients.

    def is_state(self, node):
        """Whether a statement updates a value that outlasts a micro batch: a moving average of
        weights, or a queue of features."""
        if isinstance(node, ast.Call):
            name, of = last(node.func), text(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            return name in ("update_parameters", "update_ema", "ema_update", "ema_step", "update_moving_average", "momentum_update", "update_target", "update_teacher", "soft_update") or (
                name in ("update", "step") and bool(re.search(r"(^|[._])(ema|ema_\w+|\w+_ema|teacher|swa_model|averaged)$", of, re.I)))
        if isinstance(node, ast.For) and re.search(r"parameters\(|state_dict\(|\.buffers\(", text(node.iter)):
            return any(self.in_place(n) for n in walk(node))
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            base = target.value if isinstance(target, ast.Subscript) else target
            if re.search(r"(^|_)(queue|bank|memory|memories)($|_)", last(base), re.I) and not re.search(r"ptr|pointer|size|len", last(base)):
                return isinstance(target, ast.Subscript) or any(isinstance(c, ast.Call) and last(c.func) in ("cat", "concat", "concatenate", "roll") for c in walk(node.value))
        return False

    def in_place(self, node):
        if isinstance(node, ast.Assign):
            return any(isinstance(t, ast.Attribute) and t.attr == "data" for t in node.targets)
        return isinstance(node, ast.Call) and (last(node.func) in ("lerp_", "copy_") or last(node.func) == "mul_" and isinstance(node.func, ast.Attribute) and ".grad" not in text(node.func))

    def marked(self, node):
        return isinstance(node, ast.Call) and (last(node.func) in ("backward", "manual_backward") or self.is_step(node) or self.is_draw(node)) or self.each_step(node)

    def each_step(self, node):
        return self.is_rate(node) or self.is_state(node)

    def micro_batches(self):
        """The code that runs once for each micro batch, and the scope of its loop."""
        if self.batches is None:
            updates = {"training_step"} | {last(c.args[0]) for c, _ in self.calls.get("Engine", []) if c.args}  # ignite calls it for each
            self.batches = [(scope, list(self.once(body))) for scope in self.live
                            for body in [l.body for l in self.trains_in(scope)] + ([scope.node.body] if scope.name in updates else [])]
        return self.batches

    def synchronized(self, scope):
        return self.once_known(("synchronized", id(scope)), lambda: self.gated_in(scope))

    def gated_in(self, scope):
        """The statements that a framework's own condition gates: if accelerator.sync_gradients."""
        return {id(n) for i in walk(scope.node) if isinstance(i, ast.If) and re.search(r"sync_gradients|accumulation_boundary|require_backward_grad_sync", text(i.test)) for b in i.body for n in walk(b)}

    def keeps(self, node, cls):
        """Whether a statement in a module's forward pass writes a tensor of the module that a
        later one reads: a queue, a moving average, a memory."""
        own = lambda n: n.attr if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self" else ""
        logged = lambda n: any(isinstance(c, ast.Call) and last(c.func) in ("item", "time", "perf_counter", "tolist") for c in walk(n))
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and not logged(node.value):
            target = node.targets[0]
            if isinstance(target, ast.Subscript):
                name = own(target.value)
                return bool(name) and not re.search(r"cache|mask|pos|idx|ptr|stat|log|hist|hidden|out|feat|act|attn|cfg|config|loss", name, re.I) and not constant(node.value)[1] and not isinstance(constant(index(target))[0], str)
            name = own(target.value) if isinstance(target, ast.Attribute) and target.attr == "data" else own(target)
            if name and not re.search(r"loss|time|step|count|hidden|_h$", name, re.I):
                again = any(own(n) == name for n in walk(node.value))
                return again and any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) and any(own(m) == name for m in walk(n)) for n in walk(node.value)) or again and any(
                    isinstance(c, ast.Call) and last(c.func) == "cat" for c in walk(node.value))
        if isinstance(node, ast.Call) and re.search(r"(^|_)ema_(inplace|update)|update_ema|ema_step|moving_average|momentum_update|enqueue|update_(center|queue|memory)", last(node.func)) and (
                not any(f.cls == cls for f in self.functions.get(last(node.func), []))):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("mul_", "add_", "sub_", "lerp_", "copy_"):
            base = node.func.value
            while isinstance(base, (ast.Attribute, ast.Call, ast.Subscript)) and not own(base):
                if isinstance(base, ast.Call) and (own(base.func) or not isinstance(base.func, ast.Attribute)):
                    return False  # of what a layer has computed
                base = base.func.value if isinstance(base, ast.Call) else base.value
            plainly = not node.args or constant(node.args[0])[1] and node.func.attr in ("add_", "sub_")
            return bool(own(base)) and not plainly and not re.search(r"loss|count|step|grad", own(base), re.I)
        return False

    def forwards(self):
        """The code of the job's own modules that runs in a forward pass of training."""
        todo = [s for s in self.live if s.cls and s.name == "forward" or s.cls and s.name == "training_step"]
        seen = set()
        while todo:
            scope = todo.pop()
            if id(scope) not in seen:
                seen.add(id(scope))
                yield scope
                for call in scope.calls:
                    if dotted(call.func).startswith("self."):
                        todo += [f for f in self.functions.get(last(call.func), []) if f.cls == scope.cls and f.name not in ("__init__", "eval", "train")]

    def states(self):
        found = []
        for scope in self.forwards():
            once = re.match(r"_?(ddi|init)", scope.name or "") or any(re.search(r"init|ddi", b["text"]) for b in self.branches(scope.node.body[0], scope))
            for node in walk(scope.node):
                if self.keeps(node, scope.cls) or isinstance(node, ast.For) and self.is_state(node):
                    what = text(node)[:60] if isinstance(node, (ast.Assign, ast.Call)) else "for %s in %s" % (text(node.target), text(node.iter)[:40])
                    found.append(dict(self.located(node, scope), kind="first" if once else "state", id=0, text=what))
        for scope, nodes in self.micro_batches():
            for node in nodes:
                if self.is_state(node) and id(node) not in self.synchronized(scope):
                    what = text(node)[:60] if not isinstance(node, ast.For) else "for %s in %s" % (text(node.target), text(node.iter)[:40])
                    found.append(dict(self.located(node, self.place_of(node, scope)), kind="state", id=place(node), text=what))
        return found[:10]

    def owner(self, node, scope):
        """The file of a statement that a loop runs, perhaps in a function that it calls."""
        return self.place_of(node, scope).file.path

    def place_of(self, node, scope):
        """The scope of a statement that a loop of a scope runs."""
        if id(node) in self.paths(scope):
            return scope
        return next((s for s in self.live if id(node) in self.paths(s)), scope)

    def adversaries(self):
        """Two optimizers that make steps in one loop, each after a separate backward pass."""
        found = []
        for scope, nodes in self.micro_batches():
            calls, steps = [n for n in nodes if isinstance(n, ast.Call)], {}
            for n in calls:
                if self.is_step(n):
                    by = [text(a) for a in n.args if OPTIMIZER.search(text(a))] if "scaler" in text(n.func) else []
                    steps.setdefault(by[0] if by else text(n.func.value), n)
            losses = {(n.lineno, n.col_offset) for n in calls if last(n.func) in ("backward", "manual_backward")}
            order = sorted(steps.items(), key=lambda s: s[1].lineno)
            if len(order) > 1 and len(losses) > 1 and any(order[0][1].lineno < l[0] <= order[-1][1].lineno for l in losses):
                found.append({"kind": "optimizers", "id": 0, "file": self.owner(order[1][1], scope), "line": order[1][1].lineno, "text": "%s and %s" % (order[0][0], order[1][0])})
        return found[:2]

    def draws(self):
        """The places where random numbers are drawn for each micro batch, other than dropout and
        the loader."""
        loaders = {(l["file"], l["line"]) for l in self.loaders()}
        nodes = [(n, s) for s in self.forwards() for n in s.calls]
        nodes += [(n, scope) for scope, inner in self.micro_batches() for n in inner if isinstance(n, ast.Call)]
        found = []
        for call, scope in nodes:
            if self.is_draw(call):
                where = self.owner(call, scope), call.lineno
                if where not in loaders:
                    found.append({"file": where[0], "line": where[1], "text": dotted(call.func)})
                if len(found) == 5:
                    break
        return found

    def is_draw(self, call):
        name, full = last(call.func), dotted(call.func)
        outside = re.match(r"(np|numpy)\.random\.|random\.", full) and name not in ("seed", "shuffle", "choice", "sample")
        return bool(name in RANDOM or outside or re.search(r"mixup|cutmix", name, re.I)) and name not in self.functions

    # Backpropagated expressions.

    def roots(self):
        """The expressions that are backpropagated, with their scopes, and the caller."""
        found = []
        for name in ("backward", "manual_backward"):
            for call, scope in self.calls.get(name, []):
                if not isinstance(call.func, ast.Attribute):
                    continue
                of = call.func.value
                engine = call.args and (name == "manual_backward" or not re.search(r"loss|cost|err|elbo|nll", text(of), re.I) or re.search("loss", text(call.args[0]), re.I))
                if engine or not (isinstance(of, ast.Call) and last(of.func) in ("forward",)):
                    found.append((call.args[0] if engine else of, scope, "engine" if engine else "backward", call))
        for name, calls in self.calls.items():
            if re.search(r"scaler", name, re.I) and name not in ("GradScaler", "get_grad_scaler"):
                found += [(c.args[0], s, "backward", c) for c, s in calls if len(c.args) > 1 and re.search("loss", text(c.args[0]), re.I)]
        for scope in self.live:
            if scope.name in ("training_step", "compute_loss", "loss") and scope.cls and any(c["bases"] for c in self.classes.get(scope.cls, [])):
                found += [(r, scope, scope.name, r) for r in scope.returns]
            elif scope.name in self.loss_functions() and any(isinstance(m, ast.Name) and m.id.startswith("num_items") for m in walk(scope.node)):
                found += [(r, scope, "compute_loss", r) for r in scope.returns]
            elif scope.name == "forward" and scope.cls:
                found += [(r, scope, "forward", r) for r in scope.returns if re.search(r"loss", text(r), re.I)]
        return found

    def loss_functions(self):
        """The functions that a Trainer gets to compute the loss."""
        return {last(k.value) for c, _ in self.calls.get("Trainer", []) for k in c.keywords if k.arg == "compute_loss_func"}

    def trained(self):
        """The kind of each root as a loss."""
        found = []
        for node, scope, root, at in self.roots()[:40]:
            said = node
            if isinstance(node, ast.IfExp) and isinstance(node.body, ast.Tuple):
                node = node.orelse
            if isinstance(node, ast.Dict):
                node = next((v for k, v in zip(node.keys, node.values) if k is not None and constant(k)[0] == "loss"), node)
            elif isinstance(node, ast.Call) and any(k.arg == "loss" for k in node.keywords):
                node = next(k.value for k in node.keywords if k.arg == "loss")
            elif isinstance(node, (ast.Tuple, ast.List)):
                node = next((e for e in node.elts if re.search("loss", text(e), re.I)), node)
            one = self.loss(node, scope)
            engine = root in ("backward", "engine")
            if one is None or one["kind"] == "free" and (not engine or constant(node)[1]) or one["kind"] in ("rows", "data") and not engine and not re.search("loss", text(said), re.I):
                continue
            if one.get("handed") or one["kind"] in ("rows", "data") and isinstance(node, ast.Name) and scope.has(node.id) and node.id not in scope.assigned:
                one = dict(one, kind="handed")
            found.append({"kind": one["kind"], "file": one["file"], "line": one["line"], "text": one["text"], "by": one["by"], "least": one["least"], "root": root, "at": at.lineno, "sized": bool(one.get("sized"))})
        return found

    def facts(self):
        found = Training.facts(self)
        found["trained"] = self.trained()
        names = {(u["file"], u["line"]) for u in found["unlike"]}
        pairs = [{"kind": "pairs", "id": 0, "file": f, "line": l, "text": how} for (f, l), how in sorted(self.compared.items()) if (f, l) not in names]
        pairs += [{"kind": "pairs", "id": 0, "file": t["file"], "line": t["line"], "text": t["text"]} for t in found["trained"] if t["kind"] == "pairs" and (t["file"], t["line"]) not in names]
        pairs += [{"kind": "pairs", "id": 0, "file": s.file.path, "line": getattr(n, "lineno", 0) or n.value.lineno, "text": "return_loss"} for s in self.live for n in walk(s.node)
                  if isinstance(n, ast.keyword) and n.arg == "return_loss" and constant(n.value)[0] is True
                  or isinstance(n, ast.Dict) and any(k is not None and constant(k)[0] == "return_loss" and constant(v)[0] is True for k, v in zip(n.keys, n.values))][:1]
        found["unlike"] = found["unlike"] + self.adversaries() + pairs + self.states()
        found["draws"] = self.draws()
        return found
