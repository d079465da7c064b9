# What the loss is: a mean over samples that is divided by the accumulation, or something
# that a smaller micro batch changes. It is followed from what is backpropagated.

FUNCTIONAL = {"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
              "cosine_embedding_loss", "ctc_loss", "gaussian_nll_loss", "poisson_nll_loss", "margin_ranking_loss", "soft_margin_loss", "multilabel_margin_loss",
              "multilabel_soft_margin_loss", "multi_margin_loss", "triplet_margin_loss", "hinge_embedding_loss", "triplet_margin_with_distance_loss"}
CRITERIA = {"CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "CosineEmbeddingLoss", "CTCLoss",
            "GaussianNLLLoss", "PoissonNLLLoss", "MarginRankingLoss", "SoftMarginLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "TripletMarginLoss",
            "HingeEmbeddingLoss", "LabelSmoothingCrossEntropy", "SoftTargetCrossEntropy"}
SAME = {"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "clone", "contiguous", "squeeze", "eval", "train", "requires_grad_", "type", "compile", "prepare", "wait"}
PER_SAMPLE = re.compile(r"For(SequenceClassification|ImageClassification|AudioClassification|VideoClassification|MultipleChoice)")
SIZE = re.compile(r"^(B|N|b|n|bs|bsz|batch|nbatch|n_batch|batch_len|num_samples|n_samples|(micro_|train_|this_|cur_|mini_?)?batch_?sz?(ize)?)$")
RANDOM = {"randn", "rand", "randn_like", "rand_like", "randint", "randint_like", "bernoulli", "multinomial", "normal", "normal_", "uniform_", "bernoulli_", "rsample", "randperm", "poisson"}
RANKS = {"free": 0, "mean": 1, "data": 2, "masked": 3, "unknown": 4, "sum": 5, "pairs": 6}


class Loss(Training):
    """What a job's loss is."""

    def __init__(self, sources):
        self.tree, self.looks, self.compared, self.scanned, self.batches, self.quotients = {}, 0, {}, set(), None, []
        super().__init__(sources)

    # Where statements stand.

    def paths(self, scope):
        """Of each node of a function the conditions and loops that it stands in."""
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
        """The assignments to a name of which one is in force where it is used."""
        found = []
        given = [(how, what) for how, what in scope.assigned.get(name, []) if how in ("value", "item")]
        where = lambda what: what[0] if isinstance(what, tuple) else what
        line, around = getattr(use, "lineno", 0), {(a, b) for a, b, _ in self.path(use, scope)}
        before = [g for g in given if getattr(where(g[1]), "end_lineno", 0) < line]
        for how, what in sorted(before, key=lambda g: -where(g[1]).lineno):
            at = self.path(where(what), scope)
            if any((a, b) not in around and any(a == c and b != d for c, d in around) and isinstance(n, ast.If) for a, b, n in at):
                continue  # of the other branch
            found.append((how, what))
            if all((a, b) in around or isinstance(n, ast.Try) for a, b, n in at):
                break
        return found or [g for g in given if getattr(where(g[1]), "lineno", 0) != line] or given

    def origins(self, node, scope, depth=0, n=None):
        """The expressions, with their scopes, that a name or an attribute may stand for; n is
        which of several that are unpacked."""
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

    # What an expression is as a loss.

    def kind(self, kind, node, scope, why="", by=()):
        return {"kind": kind, "file": scope.file.path, "line": getattr(node, "lineno", 0), "text": why or text(node)[:60], "by": list(by), "least": list(by)}

    def worse(self, found, node, scope):
        """What several that are added up are, or of which one is in force."""
        found = [f for f in found if f is not None]
        if not found:
            return self.kind("data", node, scope)
        worst = max(found, key=lambda f: RANKS[f["kind"]])
        if worst["kind"] == "data" and any(f["kind"] == "mean" for f in found):
            worst = dict(worst, kind="unknown", text="part of it, %s, was not recognised" % worst["text"])
        return dict(worst, by=max((f["by"] for f in found), key=len), least=max((f["least"] for f in found), key=len))

    def added(self, parts, node, scope):
        """What the sum of two parts is; of a number, or what is not known, no part is looked for."""
        whole = self.worse([f for f, _ in parts], node, scope)
        counted = [f for f, of in parts if f["kind"] != "data" and not constant(of)[1]]
        if len(counted) > 1:
            whole = dict(whole, least=min((f["least"] for f in counted), key=len))
        return whole

    def divided(self, whole, by):
        return dict(whole, by=whole["by"] + [by], least=whole["least"] + [by])

    def either(self, found, node, scope):
        """What a loss is of which one of several is in force, which is not known."""
        kinds = {f["kind"] for f in found if f is not None} - {"free"}
        worst = self.worse(found, node, scope)
        if "sum" in kinds and len(kinds) > 1 and worst["kind"] == "sum":
            return self.kind("unknown", node, scope, "it may be a sum, %s" % worst["text"])
        return worst

    def loss(self, node, scope, depth=0, n=None, active=()):
        """What an expression is: free of the batch, a mean over it, a sum …"""
        key = (id(node), id(scope), n)
        if depth > 30 or self.looks > 20000 or key in active:
            return None if key in active else self.kind("data", node, scope)
        self.looks += 1
        active = active + (key,)
        follow = lambda inner: self.loss(inner, scope, depth + 1, None, active)
        if constant(node)[1]:
            return self.kind("free", node, scope)
        if isinstance(node, ast.Name):
            return self.name_loss(node, scope, depth, n, active)
        if isinstance(node, ast.UnaryOp):
            return follow(node.operand)
        if isinstance(node, ast.IfExp):
            return self.either([self.loss(node.body, scope, depth + 1, n, active), self.loss(node.orelse, scope, depth + 1, n, active)], node, scope)
        if isinstance(node, ast.BinOp):
            return self.binary(node, scope, follow)
        if isinstance(node, (ast.Tuple, ast.List)):
            if n is not None:
                return follow(node.elts[n]) if n < len(node.elts) else self.kind("data", node, scope)
            return self.worse([follow(e) for e in node.elts], node, scope)
        if isinstance(node, ast.Call):
            return self.call_loss(node, scope, depth, n, active)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self.part_loss(node, scope, depth, active)
        return self.kind("data", node, scope)

    def name_loss(self, node, scope, depth, n, active):
        at = scope
        while at is not None and node.id not in at.assigned and not at.has(node.id):
            at = at.parent
        if at is None:
            return self.kind("data", node, scope)
        found = []
        for how, what in (self.reaching(node.id, at, node) if at is scope else at.assigned.get(node.id, []))[:WIDTH]:
            if how == "value":
                one = self.loss(what, at, depth + 1, n, active)
                loops = [m for _, _, m in self.path(what, at) if isinstance(m, (ast.For, ast.While))] if isinstance(what, ast.BinOp) and last(what.left) == node.id and isinstance(what.op, ast.Add) else []
                inside = {id(m) for _, _, m in self.path(node, at)} if at is scope else set()
                if one and one["kind"] not in ("free", "sum", "pairs") and any(id(m) not in inside for m in loops):
                    one = self.kind("unknown", what, at, "it is added up in a loop")
                found.append(one)
            else:
                found.append(self.loss(what[0], at, depth + 1, what[1], active))
        if not found and at.has(node.id):
            for call, s, ahead in self.sites(at)[:WIDTH]:
                given = self.bound(call, s, at, node.id, ahead)
                if given and given[0] == "value":
                    found.append(self.loss(given[1], given[2], depth + 1, n, active))
            if not found:
                return self.kind("free" if at.default(node.id) is not None and constant(at.default(node.id))[1] else "data", node, scope)
        return self.either(found, node, scope)

    def scalar(self, node, scope):
        """Whether a factor is the same for all samples, as far as one can see."""
        calls = [last(c.func) for c in ast.walk(node) if isinstance(c, ast.Call)]
        return not any(c not in ("float", "int", "max", "min", "len", "get_world_size", "getattr", "get") for c in calls)

    def counts(self, node, scope, depth=0):
        """Whether a number is how many samples, or elements, a micro batch has."""
        if re.search(r"num_items(_in_batch)?$", last(node)):
            return True
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
        self.paths(scope).setdefault(id(node.left), self.path(node, scope))
        left, right = follow(node.left), follow(node.right)
        if left is None or right is None:
            return left or right
        compared = self.product(node, scope)
        if compared:
            return self.kind("pairs", node, scope, compared)
        lossy = lambda f: f["kind"] in ("mean", "sum", "masked", "unknown", "pairs")
        if isinstance(node.op, (ast.Add, ast.Sub)):
            if not lossy(left) and not lossy(right):
                return self.kind("data" if "data" in (left["kind"], right["kind"]) else "free", node, scope)
            return self.added([(left, node.left), (right, node.right)], node, scope)
        if isinstance(node.op, (ast.Div, ast.Mult)) and lossy(left) != lossy(right):
            whole, other, factor = (left, right, node.right) if lossy(left) else (right, left, node.left)
            if isinstance(node.op, ast.Div) and whole is right:
                return self.kind("unknown", node, scope, "it is %s" % text(node))
            if isinstance(node.op, ast.Div) and whole["kind"] == "sum" and self.counts(factor, scope):
                return dict(whole, kind="mean", text=text(node)[:60])
            if other["kind"] == "data" and not self.scalar(factor, scope):
                return self.kind("masked" if isinstance(node.op, ast.Div) else "unknown", node, scope, "it has a normalisation of its own, %s" % text(factor)[:40]) if whole["kind"] != "pairs" else whole
            if isinstance(node.op, ast.Mult):
                if isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Div) and constant(factor.left)[1]:
                    return self.divided(whole, plain(self.value(factor.right, scope)))
                return whole
            return self.divided(whole, plain(self.value(factor, scope)))
        if not lossy(left) and not lossy(right):
            return self.kind("data" if "data" in (left["kind"], right["kind"]) else "free", node, scope)
        if isinstance(node.op, ast.Div) and left["kind"] == "sum":
            return self.kind("masked", node, scope, "it is divided by %s of each micro batch" % text(node.right)[:40])
        if max(RANKS[left["kind"]], RANKS[right["kind"]]) == RANKS["pairs"]:
            return self.worse([left, right], node, scope)
        return self.kind("unknown", node, scope, "it is no plain mean, %s" % text(node)[:40])

    def method(self, call):
        """Whether a call is of a method, and not of a module's function."""
        full = dotted(call.func)
        return isinstance(call.func, ast.Attribute) and ("()" in full or "?" in full or full.split(".")[0] not in ("torch", "F", "nn", "np"))

    def operation(self, call, left, right, op):
        """A call of div or mul as the quotient or the product that it is."""
        made = ast.copy_location(ast.BinOp(left=left, op=op(), right=right), call)
        self.quotients.append(made)  # keeps its id
        return made

    def over(self, call):
        """Over what a reduction goes: all, the first dimension, or other ones."""
        words = {k.arg: k.value for k in call.keywords}
        method = self.method(call)
        given = words.get("dim", words.get("axis", (call.args if method else call.args[1:] or [None])[0] if call.args else None))
        if given is None:
            return "all"
        dims = [constant(d)[0] for d in (given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given])]
        return "first" if 0 in dims else "other"

    def call_loss(self, node, scope, depth, n, active):
        name = last(node.func)
        method = self.method(node)
        of = node.func.value if method else node.args[0] if node.args else None
        if any(isinstance(c, ast.Call) and last(c.func) in ("parameters", "named_parameters") for c in ast.walk(node)) and name in ("sum", "norm", "mean"):
            return self.kind("free", node, scope)
        if name in FUNCTIONAL and name not in self.functions:
            return self.criterion(node, node, scope, name)
        if name in ("mean", "sum", "nanmean", "nansum") and of is not None and (method or isinstance(node.func, ast.Attribute)):
            return self.reduced(node, of, scope, depth, active)
        if name in SAME | {"scale", "reshape", "view"} and of is not None and name not in self.functions:
            return self.loss(node.args[0] if name in ("scale", "prepare") and node.args else of, scope, depth + 1, n, active)
        if name in ("stack", "cat") and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
            return self.loss(node.args[0], scope, depth + 1, None, active)
        if name in ("div", "divide", "true_divide", "mul", "multiply") and of is not None and name not in self.functions:
            factors = node.args if method else node.args[1:]
            if len(factors) == 1:
                return self.binary(self.operation(node, of, factors[0], ast.Mult if "mul" in name else ast.Div), scope, lambda inner: self.loss(inner, scope, depth + 1, None, active))
        known = self.through(node, scope, depth, n, active)
        if known is not None:
            return known
        compared = self.product(node, scope)
        if compared:
            return self.kind("pairs", node, scope, compared)
        inner = self.loss(of, scope, depth + 1, None, active) if of is not None and method or name in ("sqrt", "log", "exp", "abs", "clamp", "pow", "relu", "sum") and of is not None else None
        if inner and inner["kind"] in ("mean", "sum", "masked", "unknown"):
            return self.kind("unknown", node, scope, "it is no plain mean, %s" % text(node)[:40])
        if inner and inner["kind"] in ("pairs", "free"):
            return inner
        return self.kind("data", node, scope)

    def reduced(self, node, of, scope, depth, active):
        """A mean or a sum of something."""
        over, inner = self.over(node), self.loss(of, scope, depth + 1, None, active)
        compared = self.compares(of, scope)
        if compared:
            return compared
        if inner is None or inner["kind"] == "free":
            return inner
        if inner["kind"] != "data":
            return inner  # of what is one number already
        if isinstance(of, ast.Subscript) and not isinstance(index(of), (ast.Slice, ast.Tuple)) and not constant(index(of))[1] or last(node.func).startswith("nan") or (
                isinstance(of, ast.Call) and last(of.func) == "masked_select"):
            return self.kind("masked", node, scope, "it is taken over some of the elements, %s" % text(node)[:40])
        if over == "other":
            return dict(inner, kind="data")
        chosen = self.chosen(of, scope)
        if chosen:
            return self.kind("masked", node, scope, "it is taken over some of the samples, %s" % chosen)
        if "mean" in last(node.func):
            return self.kind("mean", node, scope)
        return self.kind("sum", node, scope)

    def criterion(self, call, made, scope, name):
        """A loss of PyTorch: call computes it, made has its options."""
        words = {k.arg: k.value for k in made.keywords}
        for inner in call.args + [k.value for k in call.keywords if k.arg in ("input", "target")]:
            compared = self.compares(inner, scope)
            if compared:
                return compared
        target = call.args[1] if len(call.args) > 1 else {k.arg: k.value for k in call.keywords}.get("target")
        if target is not None and re.search(r"cross_?entropy|nll", name, re.I) and self.numbered(target, scope):
            return self.kind("pairs", call, scope, "the labels are the places in the micro batch")
        reduction = words.get("reduction")
        value, known = constant(reduction) if reduction is not None else ("mean", True)
        if not known:
            given = self.value(reduction, scope)
            value, known = (given or {}).get("const"), "const" in (given or {})
        if "size_average" in words or "reduce" in words or not known:
            return self.kind("unknown", call, scope, "its reduction is not known")
        if value == "sum":
            return self.kind("sum", call, scope, 'reduction="sum"')
        if value == "none":
            return self.kind("data", call, scope)
        positional = made.args[2:] if made is call else made.args
        if re.search(r"cross_?entropy|nll", name, re.I) and not re.search("binary|Gaussian|Poisson|gaussian|poisson", name):
            if "ignore_index" in words:
                return self.kind("masked", call, scope, "the mean leaves out ignore_index")
            if "weight" in words and constant(words["weight"]) != (None, True) or positional and name in ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss") and constant(positional[0]) != (None, True):
                return self.kind("masked", call, scope, "the mean is weighted by classes")
        return self.kind("mean", call, scope, text(made.func)[:60])

    def through(self, node, scope, depth, n, active):
        """What is computed by a function, or a class, of the job's own, or by a criterion."""
        name, found = last(node.func), []
        if isinstance(node.func, ast.Name):
            name = self.real(name, scope)
        functions = [f for f in self.functions.get(name, []) if f.cls is None or isinstance(node.func, ast.Attribute)]
        if functions and isinstance(node.func, ast.Attribute) and dotted(node.func.value) == "self":
            functions = [f for f in functions if f.cls == scope.cls] or functions
        if functions and name not in ("forward", "__call__", "backward"):
            for f in functions[:4]:
                self.scan(f)
                found += [self.returned(f, n, depth, active)]
            return self.either(found, node, scope)
        called = node.func.value if name == "forward" and isinstance(node.func, ast.Attribute) else node.func
        for made, at, _ in self.origins(called, scope):
            if not isinstance(made, ast.Call):
                continue
            kind = last(made.func)
            kind = self.real(kind, at) if isinstance(made.func, ast.Name) else kind
            if kind in CRITERIA and kind not in self.classes:
                found.append(self.criterion(node, made, scope, kind))
            for c in self.classes.get(kind, [])[:2]:
                forward = c["methods"].get("forward") or c["methods"].get("__call__")
                if forward is not None:
                    if self.plain_loss(c, kind):
                        self.scan(forward)
                    found.append(self.returned(forward, n, depth, active))
            if PER_SAMPLE.search(dotted(made.func)):
                found.append(self.kind("mean", node, scope, dotted(made.func).split(".")[0]))
            elif re.search(r"For[A-Z]\w+$|^Auto", dotted(made.func).split(".")[0]) and kind in ("from_pretrained", "from_config"):
                found.append(self.library(node, dotted(made.func).split(".")[0], scope))
        if isinstance(node.func, ast.Call) and last(node.func.func) in CRITERIA:
            found.append(self.criterion(node, node.func, scope, last(node.func.func)))
        return self.either(found, node, scope) if found else None

    def library(self, call, name, scope):
        words = {k.arg: text(k.value) for k in call.keywords if k.arg}
        if "CausalLM" in name and words.get("labels") and words.get("labels") == words.get("input_ids", text(call.args[0]) if call.args else ""):
            return self.kind("mean", call, scope, name)
        return self.kind("masked", call, scope, "the mean of %s leaves out labels of -100" % name)

    def plain_loss(self, c, name):
        """Whether a class computes a loss, and is no model."""
        if re.search(r"loss|criterion|objective", name, re.I):
            return True
        return not any(isinstance(call, ast.Call) and dotted(call.func).startswith(("nn.", "torch.nn.")) and last(call.func) not in CRITERIA | {"Parameter", "Module"}
                       for m in c["methods"].values() for call in ast.walk(m.node))

    def returned(self, f, n, depth, active):
        found = []
        for r in f.returns[:WIDTH]:
            if isinstance(r, ast.Dict):
                r = next((v for k, v in zip(r.keys, r.values) if k is not None and constant(k)[0] == "loss"), r)
            elif isinstance(r, ast.Call) and any(k.arg == "loss" for k in r.keywords):
                r = next(k.value for k in r.keywords if k.arg == "loss")
            elif isinstance(r, ast.Call) and n is None and "loss" in self.field_names(r, f)[:len(r.args)]:
                r = r.args[self.field_names(r, f).index("loss")]
            found.append(self.loss(r, f, depth + 1, n, active))
        found = [x for x in found if x and x["kind"] != "data"] or found
        return self.either(found, f.node, f)

    def field_names(self, call, scope):
        """The names of what a named tuple, or a class of fields, is made of in their order."""
        name = self.real(last(call.func), scope) if isinstance(call.func, ast.Name) else last(call.func)
        for made, _, _ in self.origins(call.func, scope):
            if isinstance(made, ast.Call) and last(made.func) == "namedtuple" and len(made.args) > 1:
                names = made.args[1]
                return [constant(e)[0] for e in names.elts] if isinstance(names, (ast.List, ast.Tuple)) else str(constant(names)[0]).replace(",", " ").split()
        return [field for c in self.classes.get(name, [])[:1] for field in c["fields"]]

    def part_loss(self, node, scope, depth, active):
        """An attribute or an item: outputs.loss, outputs["loss"], outputs[0]."""
        key, known = (node.attr, True) if isinstance(node, ast.Attribute) else constant(index(node))
        if known and (key == "loss" or key == 0 or isinstance(key, int)):
            found = []
            for made, at, n in self.origins(node.value, scope):
                if isinstance(made, ast.Call):
                    found.append(self.through(made, at, depth + 1, key if isinstance(key, int) else None, active))
                elif isinstance(made, ast.Dict):
                    found += [self.loss(v, at, depth + 1, None, active) for k, v in zip(made.keys, made.values) if k is not None and constant(k)[0] == key]
            if any(found):
                return self.worse(found, node, scope)
            if known and key == "loss":
                stored = [self.loss(v, s, depth + 1, None, active) for v, s, owner in self.stores.get("loss", [])[:WIDTH] if owner == text(node.value)]
                if stored:
                    return self.worse(stored, node, scope)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            values = [self.loss(v, s, depth + 1, None, active) for v, s, owner in self.stores.get(node.attr, [])[:WIDTH] if owner == "self" and s.cls == scope.cls]
            if values:
                return self.worse(values, node, scope)
        if isinstance(node, ast.Attribute) and CONFIG.search(last(node.value) or ""):
            return self.kind("free", node, scope)
        return self.kind("data", node, scope)

    # What compares the samples of a micro batch with each other.

    def numbered(self, node, scope, depth=0):
        """Whether labels are the numbers of the samples: arange(len(batch))."""
        for made, at, _ in self.origins(node, scope):
            calls = [c for c in ast.walk(made) if isinstance(c, ast.Call) and last(c.func) == "arange"]
            if any(len(c.args) == 1 for c in calls):
                return True
        return False

    def transposed(self, node):
        """What is transposed as a matrix is; None for what is not. The last two of more
        dimensions, as attention has them, do not count."""
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

    def samples(self, node, scope, depth=0):
        """Whether a tensor may have the samples of a batch as rows: no weight, and no
        attribute of a module."""
        while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
            if isinstance(node, ast.Attribute) and (node.attr in ("weight", "bias", "data") or isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                return False
            if isinstance(node, ast.Call):
                name = last(node.func)
                if name in ("Parameter", "Linear", "Embedding", "zeros", "ones", "eye", "arange", "linspace", "tensor", "outer") or name in self.classes:
                    return False
                if self.method(node) and not (isinstance(node.func.value, ast.Name) and node.func.value.id in ("self", "cls")):
                    node = node.func.value
                elif node.args and name in ("normalize", "stack", "cat", "exp", "log", "softmax", "log_softmax", "t", "transpose", "clone", "gather"):
                    node = node.args[0]
                else:
                    return True
                continue
            node = node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return any(self.samples(e, scope, depth) for e in node.elts)
        if isinstance(node, ast.BinOp):
            return self.samples(node.left, scope, depth) or self.samples(node.right, scope, depth)
        if isinstance(node, ast.Name) and depth < 4:
            values = [w for how, w in self.reaching(node.id, scope, node) if how == "value"] if node.id in scope.assigned else []
            return all(self.samples(v, scope, depth + 1) for v in values)
        return not isinstance(node, ast.Constant)

    def one_step(self, node, scope):
        """A name's own expressions beside it."""
        if isinstance(node, ast.Name) and node.id in scope.assigned:
            return [node] + [w for how, w in self.reaching(node.id, scope, node) if how == "value"][:4]
        return [node]

    def product(self, node, scope):
        """How an expression compares samples with each other; empty where it does not."""
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
            if name == "pdist" or len(node.args) > 1 and all(self.samples(a, scope) for a in node.args[:2]):
                return text(node)[:60]
        if name == "einsum" and node.args:
            letters = re.match(r"^\s*([a-z]+)\s*,\s*([a-z]+)\s*->\s*([a-z]*)\s*$", str(constant(node.args[0])[0]), re.I)
            if letters and len(node.args) == 3 and all(self.samples(a, scope) for a in node.args[1:]):
                a, b, out = letters.group(1), letters.group(2), letters.group(3)
                if a[0] != b[0] and len(a) > 1 and len(b) > 1 and a[0] in out and b[0] in out and a[0] not in b and b[0] not in a or a[0] == b[0] and a[0] not in out and len(out) > 1:
                    return text(node)[:60]
        return self.broadcast(node, name, scope) or self.statistic(node, name, scope)

    def broadcast(self, node, name, scope):
        """Each sample against each other one: x[:, None] - x[None]."""
        sides = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Mult)):
            sides = node.left, node.right
        elif isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = node.left, node.comparators[0]
        elif name in ("cosine_similarity", "eq", "pairwise_distance") and len(node.args) > 1:
            sides = node.args[0], node.args[1]
        if sides and {self.widened(s) for s in sides} == {0, 1} and all(self.samples(s, scope) for s in sides):
            return text(node)[:60]
        return ""

    def widened(self, node):
        """Before which of the first two dimensions one is put in."""
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
        """Looks through a whole function that computes a loss."""
        if id(f) in self.scanned:
            return
        self.scanned.add(id(f))
        for node in ast.walk(f.node):
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
        """What a function that computes a loss calls of the job's own: functions, and
        methods of the same class."""
        for inner in self.functions.get(last(node.func), [])[:4]:
            mine = inner.cls is None and isinstance(node.func, ast.Name) or inner.cls == f.cls and dotted(node.func).startswith("self.")
            if mine and last(node.func) not in ("forward", "__init__"):
                self.scan(inner)

    def compares(self, node, scope, depth=0, seen=None):
        """Whether what a loss is computed of compares samples: as the kind of a loss, or None.
        Into a model only its results are followed, not what is in its layers."""
        seen = set() if seen is None else seen
        if depth > 8 or id(node) in seen or self.looks > 20000:
            return None
        seen.add(id(node))
        self.looks += 1
        stack = [node]
        while stack:
            inner = stack.pop()
            if isinstance(inner, ast.Lambda):
                continue
            if isinstance(inner, (ast.BinOp, ast.Call, ast.Compare)):
                how = self.product(inner, scope)
                if how:
                    return self.kind("pairs", inner, scope, how)
                if isinstance(inner, ast.Call) and last(inner.func) in ("std", "var") and isinstance(inner.func, ast.Attribute) and self.over(inner) == "all":
                    return self.kind("masked", inner, scope, "it is scaled by %s of each micro batch" % text(inner)[:40])
            if isinstance(inner, ast.Call):
                found = self.results(inner, scope, None, depth, seen)
                if found:
                    return found
                if self.models(inner, scope) or isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Name) and inner.func.value.id == "self":
                    continue  # a layer, or a model: what goes in is no part of the loss
            if isinstance(inner, ast.Name) and inner.id in scope.assigned:
                for how, what in self.reaching(inner.id, scope, inner)[:6]:
                    found = self.compares(what, scope, depth + 1, seen) if how == "value" else self.unpacked(what, scope, depth, seen) if how == "item" else None
                    if found:
                        return found
                continue
            stack.extend(ast.iter_child_nodes(inner))
        return None

    def unpacked(self, what, scope, depth, seen):
        value, n = what
        if isinstance(value, ast.Call):
            return self.results(value, scope, n, depth, seen)
        return self.compares(value, scope, depth + 1, seen)

    def models(self, call, scope):
        """The job's own classes of which a call runs the forward pass."""
        found = []
        for made, at, _ in self.origins(call.func, scope):
            if isinstance(made, ast.Call):
                kind = self.real(last(made.func), at) if isinstance(made.func, ast.Name) else last(made.func)
                found += [c for c in self.classes.get(kind, [])[:2] if "forward" in c["methods"]]
        return found

    def results(self, call, scope, n, depth, seen):
        """Whether what a function of the job's own returns, or a model of its, compares samples."""
        name = self.real(last(call.func), scope) if isinstance(call.func, ast.Name) else last(call.func)
        targets = [f for f in self.functions.get(name, [])[:4] if f.cls is None and isinstance(call.func, ast.Name) or f.cls == scope.cls and f.cls is not None and dotted(call.func) == "self." + name]
        targets += [c["methods"]["forward"] for c in self.models(call, scope)] if depth < 3 else []
        for f in targets:
            for r in f.returns[:WIDTH]:
                if n is not None and isinstance(r, ast.Tuple):
                    r = r.elts[n] if n < len(r.elts) else r
                found = self.compares(r, f, depth + 3, seen)
                if found:
                    return found
        return None

    # What each micro batch changes beside the gradients.

    def is_state(self, node):
        """Whether a statement updates what outlasts a micro batch: a moving average of weights,
        or a queue of features."""
        if isinstance(node, ast.Call):
            name, of = last(node.func), text(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            return name in ("update_parameters", "update_ema", "ema_update", "ema_step", "update_moving_average", "momentum_update", "update_target", "update_teacher", "soft_update") or (
                name in ("update", "step") and bool(re.search(r"(^|[._])(ema|ema_\w+|\w+_ema|teacher|swa_model|averaged)$", of, re.I)))
        if isinstance(node, ast.For) and re.search(r"parameters\(|state_dict\(|\.buffers\(", text(node.iter)):
            return any(self.in_place(n) for n in ast.walk(node))
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            base = target.value if isinstance(target, ast.Subscript) else target
            if re.search(r"(^|_)(queue|bank|memory|memories)($|_)", last(base), re.I) and not re.search(r"ptr|pointer|size|len", last(base)):
                return isinstance(target, ast.Subscript) or any(isinstance(c, ast.Call) and last(c.func) in ("cat", "concat", "concatenate", "roll") for c in ast.walk(node.value))
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
        """What runs once for each micro batch, and the scope whose loop it is."""
        if self.batches is None:
            self.batches = [(scope, list(self.once(body))) for scope in self.live
                            for body in [l.body for l in self.trains_in(scope)] + ([scope.node.body] if scope.name == "training_step" else [])]
        return self.batches

    def synchronized(self, scope):
        return self.once_known(("synchronized", id(scope)), lambda: self.gated_in(scope))

    def gated_in(self, scope):
        """The statements that a framework's own word gates: if accelerator.sync_gradients."""
        return {id(n) for i in ast.walk(scope.node) if isinstance(i, ast.If) and re.search(r"sync_gradients|accumulation_boundary|require_backward_grad_sync", text(i.test)) for b in i.body for n in ast.walk(b)}

    def keeps(self, node, cls):
        """Whether a statement in a module's forward pass writes a tensor of the module that a
        later one reads: a queue, a moving average, a memory."""
        own = lambda n: n.attr if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self" else ""
        logged = lambda n: any(isinstance(c, ast.Call) and last(c.func) in ("item", "time", "perf_counter", "tolist") for c in ast.walk(n))
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and not logged(node.value):
            target = node.targets[0]
            if isinstance(target, ast.Subscript):
                name = own(target.value)
                return bool(name) and not re.search(r"cache|mask|pos|idx|ptr|stat|log|hist|hidden|out|feat|act|attn|cfg|config|loss", name, re.I) and not constant(node.value)[1] and not isinstance(constant(index(target))[0], str)
            name = own(target.value) if isinstance(target, ast.Attribute) and target.attr == "data" else own(target)
            if name and not re.search(r"loss|time|step|count|hidden|_h$", name, re.I):
                again = any(own(n) == name for n in ast.walk(node.value))
                return again and any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) and any(own(m) == name for m in ast.walk(n)) for n in ast.walk(node.value)) or again and any(
                    isinstance(c, ast.Call) and last(c.func) == "cat" for c in ast.walk(node.value))
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
        """What modules of the job's own run in a forward pass of training."""
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
            for node in ast.walk(scope.node):
                if self.keeps(node, scope.cls) or isinstance(node, ast.For) and self.is_state(node):
                    what = text(node)[:60] if isinstance(node, (ast.Assign, ast.Call)) else "for %s in %s" % (text(node.target), text(node.iter)[:40])
                    found.append({"kind": "state", "id": 0, "file": scope.file.path, "line": node.lineno, "text": what})
        for scope, nodes in self.micro_batches():
            for node in nodes:
                if self.is_state(node) and id(node) not in self.synchronized(scope):
                    what = text(node)[:60] if not isinstance(node, ast.For) else "for %s in %s" % (text(node.target), text(node.iter)[:40])
                    found.append({"kind": "state", "id": node.lineno * 1000 + node.col_offset, "file": self.owner(node, scope), "line": node.lineno, "text": what})
        return found[:10]

    def owner(self, node, scope):
        """The file of a statement that a loop runs, perhaps in what it calls."""
        if id(node) in self.paths(scope):
            return scope.file.path
        for s in self.live:
            if id(node) in self.paths(s):
                return s.file.path
        return scope.file.path

    def adversaries(self):
        """Two optimizers that make steps in one loop, each after a backward pass of its own."""
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
        """Where random numbers are drawn for each micro batch, beside dropout and the loader."""
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

    def offsets(self):
        """The loops that train and count samples, not batches: their slices go from i to
        i + batch."""
        found = []
        for scope in self.live:
            for loop in self.trains_in(scope):
                names = set()
                if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and last(loop.iter.func) == "range" and len(loop.iter.args) == 3:
                    names.add(last(loop.target))
                for n in ast.walk(loop):
                    piece = index(n) if isinstance(n, ast.Subscript) else None
                    if isinstance(piece, ast.Slice) and isinstance(piece.lower, ast.Name) and isinstance(piece.upper, ast.BinOp) and isinstance(piece.upper.op, ast.Add) and (
                            piece.lower.id in (last(piece.upper.left), last(piece.upper.right))):
                        names.add(piece.lower.id)
                found += [{"file": scope.file.path, "line": loop.lineno, "counter": name} for name in sorted(names) if name]
        return found

    # What is backpropagated.

    def roots(self):
        """The expressions that are backpropagated, with their scopes, and who does it."""
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
            elif scope.name == "forward" and scope.cls:
                found += [(r, scope, "forward", r) for r in scope.returns if re.search(r"loss", text(r), re.I)]
        return found

    def trained(self):
        """What each root is as a loss."""
        found = []
        for node, scope, root, at in self.roots()[:40]:
            if isinstance(node, ast.Dict):
                node = next((v for k, v in zip(node.keys, node.values) if k is not None and constant(k)[0] == "loss"), node)
            elif isinstance(node, ast.Call) and any(k.arg == "loss" for k in node.keywords):
                node = next(k.value for k in node.keywords if k.arg == "loss")
            elif isinstance(node, (ast.Tuple, ast.List)):
                node = next((e for e in node.elts if re.search("loss", text(e), re.I)), node)
            one = self.loss(node, scope)
            if one is None or one["kind"] == "free" or one["kind"] == "data" and root in ("forward", "training_step", "compute_loss", "loss") and not re.search("loss", text(node), re.I):
                continue
            if one["kind"] == "data" and isinstance(node, ast.Name) and scope.has(node.id) and node.id not in scope.assigned:
                one = dict(one, kind="handed")
            found.append({"kind": one["kind"], "file": one["file"], "line": one["line"], "text": one["text"], "by": one["by"], "least": one["least"], "root": root, "at": at.lineno})
        return found

    def facts(self):
        found = Training.facts(self)
        found["trained"] = self.trained()
        names = {(u["file"], u["line"]) for u in found["unlike"]}
        pairs = [{"kind": "pairs", "id": 0, "file": f, "line": l, "text": how} for (f, l), how in sorted(self.compared.items()) if (f, l) not in names]
        pairs += [{"kind": "pairs", "id": 0, "file": t["file"], "line": t["line"], "text": t["text"]} for t in found["trained"] if t["kind"] == "pairs" and (t["file"], t["line"]) not in names]
        pairs += [{"kind": "pairs", "id": 0, "file": s.file.path, "line": getattr(n, "lineno", 0) or n.value.lineno, "text": "return_loss"} for s in self.live for n in ast.walk(s.node)
                  if isinstance(n, ast.keyword) and n.arg == "return_loss" and constant(n.value)[0] is True
                  or isinstance(n, ast.Dict) and any(k is not None and constant(k)[0] == "return_loss" and constant(v)[0] is True for k, v in zip(n.keys, n.values))][:1]
        found["unlike"] = found["unlike"] + self.adversaries() + pairs + self.states()
        found["draws"] = self.draws()
        found["offsets"] = self.offsets()
        return found
