# Operations that are known to work on each sample by itself. A loss is proven to be a mean over
# the samples if all operations in it are listed here. Any other operation is doubtful, and the
# reason names it.
#
# For each value it is known where its samples are (at: the dimension), the least number of its
# dimensions (rank), whether its last one may be that of the samples (flat), and whether it may be
# a list, or a dictionary, of such values (box).

ELEMENTWISE = set("""Variable abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bfloat16 bitwise_and bitwise_not bitwise_or bool bucketize ceil celu clamp clamp_max
    clamp_min clip clone complex conj contiguous copysign cos cosh cpu cuda deg2rad detach digamma div divide double dropout elu empty_like entr eq erf erfc erfinv exp exp2 expand_as
    expm1 float floor fmod frac full_like gelu ge greater gt half hardshrink hardsigmoid hardswish hardtanh heaviside hypot int isclose isfinite isinf isnan le leaky_relu lerp less
    lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid long lt mask_fill masked_fill maximum minimum mish mul multiply mvlgamma
    nan_to_num ne neg negative new_full new_ones new_tensor new_zeros numpy ones_like polygamma positive pow prelu real reciprocal relu relu6 remainder reshape_as requires_grad_
    rsqrt rsub selu sgn sigmoid sign silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink tensor threshold to true_divide trunc type type_as view_as
    where xlogy zeros_like as_tensor from_numpy one_hot embedding dropout1d dropout2d feature_dropout alpha_dropout pin_memory cosine_similarity pairwise_distance sigmoid_focal_loss
    interpolate upsample pad conv1d conv2d conv3d conv_transpose1d conv_transpose2d max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_max_pool1d adaptive_max_pool2d pixel_shuffle pixel_unshuffle grid_sample affine_grid group_norm instance_norm layer_norm rms_norm view_as_complex view_as_real squeeze_ relu_
    clamp_ unfold fold broadcast_tensors meshgrid tril triu repeat_interleave_ expand""".split())
# Operations along dimensions, the position of the argument dim, and its default; None: they go
# over all elements.
ALONG = {"softmax": (0, None), "log_softmax": (0, None), "softmin": (0, None), "gumbel_softmax": (3, -1), "logsumexp": (0, None), "normalize": (1, 1), "glu": (0, -1), "cumsum": (0, None), "cumprod": (0, None),
         "logcumsumexp": (0, None), "sort": (0, -1), "argsort": (0, -1), "topk": (1, -1), "kthvalue": (1, -1), "mode": (0, -1), "gather": (0, None), "take_along_dim": (1, None), "index_select": (0, None),
         "flip": (0, None), "roll": (1, None), "diff": (1, -1), "narrow": (0, None), "chunk": (1, 0), "split": (1, 0), "tensor_split": (1, 0), "unbind": (0, 0), "renorm": (1, None), "rfft": (1, -1), "fft": (1, -1),
         "max": (0, None), "min": (0, None), "amax": (0, None), "amin": (0, None), "norm": (1, None), "vector_norm": (1, None), "std": (0, None), "var": (0, None), "median": (0, None), "nanmedian": (0, None), "quantile": (1, None),
         "prod": (0, None), "argmax": (0, None), "argmin": (0, None), "any": (0, None), "all": (0, None), "mean": (0, None), "sum": (0, None), "nanmean": (0, None), "nansum": (0, None), "select": (0, None), "std_mean": (0, None),
         "var_mean": (0, None), "count_nonzero": (0, None), "aminmax": (0, None), "cross": (1, None)}
REDUCING = set("logsumexp max min amax amin norm vector_norm std var median nanmedian quantile prod argmax argmin any all mean sum nanmean nansum select std_mean var_mean kthvalue mode count_nonzero aminmax".split())
SEVERAL = {"max", "min", "median", "nanmedian", "sort", "topk", "kthvalue", "mode", "std_mean", "var_mean", "aminmax"}  # with dim: values and indices
LISTS = {"chunk", "split", "tensor_split", "unbind"}
RECURRENT = {"LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"}
MODEL = re.compile(r"model|net|enc|dec|backbone|head|module|student|teacher|policy|critic|actor|generator|discriminator|layer|block|proj|mlp|classifier|linear|conv|vae|unet|vit|embed|bert|gpt|resnet|lpips|transformer|^(G|D|f|g|fc\d*|from_pretrained|from_config|create_model)$", re.I)
HOLDS = re.compile(r"batch|input|data|sample|example|feat|item|kwargs|out|target|label", re.I)
ITERATORS = {"tqdm", "list", "tuple", "sorted", "reversed", "iter", "track", "progress_bar", "cycle", "islice", "set"}
FIXED = {"range", "trange", "keys", "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers", "param_groups"}
QUIET = {"train", "eval", "zero_grad", "to", "cuda", "step", "backward", "detach_", "no_sync", "requires_grad_", "requires_grad", "print", "close", "set_description", "set_postfix", "set_epoch", "retain_grad"}
ENTRIES = {"forward", "training_step", "compute_loss", "__call__"}


class Rows(Training):
    """Finds operations that work on each sample by itself."""

    def __init__(self, sources):
        self.known, self.loops, self.changed = {}, {}, {}
        super().__init__(sources)

    def free(self, node, scope):
        return self.kind("free", node, scope)

    def rows(self, node, scope, at=0, rank=1, **more):
        return dict(self.kind("rows", node, scope), at=at, rank=max(rank, at + 1), **more)

    def doubtful(self, node, scope, why=""):
        return self.kind("data", node, scope, why or "%s may not work on each sample by itself" % text(node)[:50])

    def count(self, node, scope):
        return dict(self.doubtful(node, scope, "%s follows from the size of a micro batch" % text(node)[:40]), count=True)

    def together(self, found, node, scope):
        """The result of an elementwise operation on its operands."""
        found = [f for f in found if f is not None]
        worst = max(found, key=lambda f: RANKS[f["kind"]], default=None)
        if worst is None or worst["kind"] == "free":
            return self.free(node, scope)
        if worst["kind"] in ("mean", "sum") or any(f["kind"] in ("mean", "sum") for f in found) and worst["kind"] == "rows":
            return self.kind("unknown", node, scope, "%s is no plain mean" % text(node)[:40])
        if worst["kind"] != "rows":
            return dict(worst, count=False)
        several = [f for f in found if f["kind"] == "rows"]
        sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, node.comparators[0]] if isinstance(node, ast.Compare) else node.args[:2] if isinstance(node, ast.Call) else []
        wide = [self.widened(s) is not None for s in sides]
        if len(sides) == 2 and wide[0] != wide[1]:
            a, b = (sides[0], sides[1]) if wide[0] else (sides[1], sides[0])
            if text(a.value if isinstance(a, ast.Subscript) else a.func.value if isinstance(a.func, ast.Attribute) else a) == text(b):
                return self.doubtful(node, scope)  # each with each other
        if len({f["at"] for f in several}) > 1:
            return self.doubtful(node, scope)
        return self.rows(node, scope, several[0]["at"], max(f["rank"] for f in several), flat=all(f.get("flat") for f in several), box=any(f.get("box") for f in several))

    def as_box(self, found, node, scope):
        """A list, or a dictionary, of values."""
        found = [f for f in found if f is not None]
        worst = max(found, key=lambda f: RANKS[f["kind"]], default=None)
        if worst is None:
            return self.free(node, scope)
        if worst["kind"] == "rows" and any(f["kind"] == "mean" for f in found):
            return self.kind("unknown", node, scope)
        return dict(self.worse(found, node, scope) if worst["kind"] in ("mean", "sum") else worst, box=True)

    # Names.

    def training(self, scope):
        """The training loops of a scope, by their ids."""
        if id(scope) not in self.loops:
            self.loops[id(scope)] = {id(l): l for l in self.trains_in(scope)}
        return self.loops[id(scope)]

    def gated(self, node, at):
        """Whether a statement is next to the optimizer's step, under a condition."""
        return any(isinstance(m, ast.If) and name == "body" and self.under_all(m.body)[0] for _, name, m in self.path(node, at))

    def changes(self, scope):
        """The statements of a scope that change a value in place, by its name."""
        if id(scope) not in self.changed:
            found, body = {}, scope.node.body if isinstance(scope.node.body, list) else []
            for block in self.blocks(body):
                for s in block:
                    targets = [s.target] if isinstance(s, ast.AugAssign) else s.targets if isinstance(s, ast.Assign) else []
                    for t in targets:
                        if isinstance(t, ast.Subscript):
                            found.setdefault(text(t.value), []).append((s, t, s.value))
                    call = s.value if isinstance(s, ast.Expr) else None
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr not in QUIET:
                        of = call.func.value
                        while isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute):
                            of = of.func.value
                        found.setdefault(text(of), []).append((s, None, call))
            self.changed[id(scope)] = found
        return self.changed[id(scope)]

    def name_loss(self, node, scope, depth, n, active):
        up = node
        while up is not None and not isinstance(up, ast.stmt):
            for g in getattr(up, "generators", []):
                if any(isinstance(m, ast.Name) and m.id == node.id for m in walk(g.target)) and not any(m is node for m in walk(g.iter)):
                    return self.element(g.target, g.iter, node.id, scope, depth, active)
            if isinstance(up, ast.Lambda) and any(a.arg == node.id for a in up.args.args):
                return self.rows(node, scope)
            up = getattr(up, "gpurun_up", None)
        at = scope
        while at is not None and node.id not in at.assigned and not at.has(node.id):
            at = at.parent
        if at is None:
            return self.free(node, scope) if node.id in ("self", "cls") or node.id in scope.file.imports or node.id in self.classes or node.id in self.functions or CONFIG.search(node.id) or MODEL.search(node.id) or node.id in BUILTINS else self.doubtful(node, scope)
        loops = self.training(at)
        around = [m for _, _, m in self.path(node, at) if id(m) in loops] if at is scope else []
        given = self.reaching(node.id, at, node) if at is scope else at.assigned.get(node.id, [])
        if at is scope and at.has(node.id) and not any(getattr(w[0] if isinstance(w, tuple) else w.node if isinstance(w, Scope) else w, "end_lineno", 0) < node.lineno for _, w in at.assigned.get(node.id, [])):
            given = []  # the parameter itself
        found, outside = [], False
        for how, what in given[:WIDTH]:
            where = what[0] if isinstance(what, tuple) else what.node if isinstance(what, Scope) else what
            if how in ("set", "function"):
                found.append(self.count(node, scope) if self.is_batch(node.id) else self.free(node, scope))
                continue
            inside = [m for _, _, m in self.path(where, at) if id(m) in loops]
            if how == "loop":
                loop = getattr(what, "gpurun_up", None)
                found.append(self.drawn(loop, node, at, depth, active) if id(loop) in loops else self.element(loop.target, what, node.id, at, depth, active))
            elif not inside and (loops or isinstance(at.node, ast.Module)):
                outside = True
                found.append(self.constant_of(what, node, at, depth, n, active))
            else:
                one = self.loss(what if how == "value" else what[0], at, depth, n if how == "value" else what[1], active)
                found.append(self.summed(one, what, node, at, scope, depth, active) if how == "value" else one)
                found.append(self.chosen(where, node, at, scope, depth, active))
        if around and outside:
            found.append(self.carried(node, at, around[-1], depth, active))
        found += self.written_to(node, at, scope, around, outside, depth, active)
        if at.has(node.id) and not outside and not any(not self.path(w[0] if isinstance(w, tuple) else w, at) for h, w in given if h in ("value", "item")):
            found.append(self.parameter(node, at, depth, n, active))
        found = self.either(found, node, scope)
        return dict(found, rank=3) if found is not None and found["kind"] == "rows" and found["rank"] < 3 and node.id in self.pooled(at) else found

    def pooled(self, scope):
        """The names of a forward pass whose values have at least three dimensions: one between
        that of the samples and the last is selected before a layer."""
        if scope.name != "forward":
            return ()
        return self.once_known(("pooled", id(scope)), lambda: {
            of.func.value.id for call in scope.calls if dotted(call.func).startswith("self.") for of in call.args
            if isinstance(of, ast.Call) and last(of.func) in REDUCING and isinstance(of.func, ast.Attribute) and isinstance(of.func.value, ast.Name)
            and [constant(d)[0] for d in of.args + [k.value for k in of.keywords if k.arg == "dim"]] == [1]
            and not any(re.search(r"squeeze|view|reshape|\[", text(w)) for how, w in scope.assigned.get(of.func.value.id, []) if how == "value")})

    def constant_of(self, what, node, at, depth, n, active):
        """A value made outside the training loops is the same for all micro batches, except their
        size and their number."""
        value = what[0] if isinstance(what, tuple) else what
        if self.sizes(value) or self.is_batch(node.id) and not constant(value)[1]:
            return self.count(node, at)
        if not self.path(value, at) and id(value) not in self.paths(at):
            return self.doubtful(node, at, "%s is set elsewhere" % node.id)  # by a function, as a global
        return self.free(node, at)

    def sizes(self, value):
        """Whether a number is the size of a micro batch, or the number of them."""
        return any(isinstance(m, (ast.Attribute, ast.Name)) and isinstance(m.ctx, ast.Load) and self.is_batch(last(m)) or isinstance(m, ast.Call) and last(m.func) == "len" and m.args and re.search(r"load|(^|_)dl$", last(m.args[0]), re.I)
                   for m in walk(value)) and not any(isinstance(m, ast.Call) and last(m.func) not in ("len", "int", "float", "max", "min", "round") for m in walk(value))

    def drawn(self, loop, node, at, depth, active):
        """The values of a training loop: its samples, and the number of the micro batch."""
        target, of = loop.target, loop.iter
        while isinstance(of, ast.Call) and last(of.func) in ITERATORS - {"list", "tuple", "sorted"} and of.args:
            of = of.args[0]
        kind = last(of.func) if isinstance(of, ast.Call) else ""
        first = target.elts[0] if isinstance(target, (ast.Tuple, ast.List)) and target.elts else None
        numbers = kind == "enumerate" and of.args and isinstance(of.args[0], ast.Call) and last(of.args[0].func) in ("range", "trange")
        if kind in ("range", "trange", "count") or numbers or kind == "enumerate" and first is not None and last(first) == node.id:
            return dict(self.doubtful(node, at, "%s counts the micro batches" % node.id), counter=True)
        return self.rows(node, at, box=isinstance(target, ast.Name) or isinstance(target, ast.Tuple) and any(t is not first and last(t) == node.id for t in target.elts if kind == "enumerate"))

    def element(self, target, of, name, scope, depth, active):
        """An element that a loop's name takes from a list, a dictionary, or numbers."""
        while isinstance(of, ast.Call) and last(of.func) in ITERATORS and of.args:
            of = of.args[0]
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else None
        mine = next((i for i, p in enumerate(parts) if any(isinstance(m, ast.Name) and m.id == name for m in walk(p))), None) if parts else None
        follow = lambda inner: self.loss(inner, scope, depth, None, active)
        if isinstance(of, ast.Call):
            kind = last(of.func)
            if kind in FIXED:
                return self.free(of, scope)
            if kind == "enumerate" and of.args and mine is not None:
                return self.free(of, scope) if mine == 0 else self.element(parts[1], of.args[0], name, scope, depth, active)
            if kind == "zip" and mine is not None and mine < len(of.args):
                return self.element(parts[mine], of.args[mine], name, scope, depth, active)
            if kind == "items" and mine == 0:
                return self.free(of, scope)
            if kind in ("items", "values") and isinstance(of.func, ast.Attribute):
                return self.inner(follow(of.func.value), of, scope)
        if isinstance(of, (ast.List, ast.Tuple)) and mine is not None:
            each = [e.elts[mine] for e in of.elts if isinstance(e, (ast.List, ast.Tuple)) and mine < len(e.elts)]
            return self.as_box([follow(e) for e in each], of, scope)
        return self.inner(follow(of), of, scope)

    def inner(self, whole, node, scope):
        """An element of a list, or of a dictionary."""
        if whole is None or whole["kind"] != "rows" or whole.get("box"):
            return whole
        if whole["at"] > 0:
            return dict(whole, at=whole["at"] - 1, rank=max(1, whole["rank"] - 1))
        return self.doubtful(node, scope, "each sample of %s is taken by itself" % text(node)[:40])

    def chosen(self, where, node, at, scope, depth, active):
        """What decides whether an assignment is in force; None if it is the same for all micro
        batches."""
        around = {(a, b) for a, b, _ in self.path(node, at)} if at is scope else set()
        for a, b, m in self.path(where, at):
            if isinstance(m, ast.If) and (a, b) not in around:
                test = self.loss(m.test, at, depth, None, active)
                if test is not None and test["kind"] != "free":
                    return self.doubtful(m.test, at, "if %s" % text(m.test)[:50])
        return None

    def carried(self, node, at, loop, depth, active):
        """A name that one micro batch leaves for the next; None if it does not."""
        fresh = {m.id for m in walk(loop) if isinstance(m, ast.Name) and isinstance(m.ctx, ast.Store)}
        for how, what in at.assigned.get(node.id, []):
            where = what[0] if isinstance(what, tuple) else what
            if how not in ("value", "item") or not any(m is loop for _, _, m in self.path(where, at)) or self.gated(where, at):
                continue
            if isinstance(where, ast.Call) and not any(isinstance(m, ast.Name) and m.id in fresh for m in walk(where)):
                continue  # the next batch
            return self.doubtful(where, at, "%s is kept from one micro batch to the next" % node.id)
        return None

    def written_to(self, node, at, scope, around, outside, depth, active):
        """The values that are written into a value after it was made."""
        found = []
        for s, target, value in self.changes(at).get(node.id, []):
            if any(m is node for m in walk(s)) or self.gated(s, at):
                continue
            inside = any(id(m) in self.training(at) for _, _, m in self.path(s, at))
            if outside or not inside and (self.training(at) or isinstance(at.node, ast.Module)):
                if inside and around:
                    found.append(self.doubtful(s, at, text(s)[:60]))
                continue
            if target is None and value.func.attr in ("append", "extend", "update", "add", "insert"):
                one = self.as_box([self.loss(a, at, depth, None, active) for a in value.args + [k.value for k in value.keywords]], s, at)
                found.append(self.summed(one, s, node, at, scope, depth, active, True))
            elif target is None:
                found.append(self.loss(value, at, depth, None, active))
            else:
                of, key = self.loss(value, at, depth, None, active), index(target)
                picks = isinstance(key, ast.Tuple) and isinstance(key.elts[0], ast.Slice) and key.elts[0].lower is key.elts[0].upper is None or isinstance(constant(key)[0], str)
                found.append(of if picks or isinstance(key, ast.Compare) and constant(value)[1] or isinstance(key, ast.Name) and of is not None and of["kind"] == "mean" else self.doubtful(s, at, text(s)[:60]))
        return found

    def summed(self, one, what, node, at, scope, depth, active, always=False):
        """A value that a loop adds up over anything but a few numbers is no longer a mean."""
        adds = always or isinstance(what, ast.BinOp) and isinstance(what.op, (ast.Add, ast.Sub)) and last(what.left) == node.id
        if not adds or not one or one["kind"] in ("free", "sum", "pairs"):
            return one
        inside = {id(m) for _, _, m in self.path(node, at)} if at is scope else set()
        for _, _, m in self.path(what, at):
            if isinstance(m, (ast.For, ast.While)) and id(m) not in inside:
                of = self.loss(m.iter, at, depth, None, active) if isinstance(m, ast.For) else None
                if of is None or of["kind"] != "free" and not of.get("box"):
                    return self.kind("unknown", what, at, "it is added up in a loop")
        return one

    def parameter(self, node, at, depth, n, active):
        """A parameter of a function: the values that its callers give."""
        name, default = node.id, at.default(node.id)
        plain_default = default is not None and constant(default)[1] and constant(default)[0] is not None
        if id(at) in self.params and any(p.get("param") == name for p in self.params[id(at)]):
            return self.count(node, at) if self.is_batch(name) else self.free(node, at)
        if name in ("self", "cls"):
            return self.free(node, at)
        if at.cls and at.name in ENTRIES:
            if plain_default or name == "model":
                return self.free(node, at)
            if at.name == "training_step" and re.search(r"batch_(idx|nb|index|num)$|^(idx|step|batch_i)$", name):
                return self.doubtful(node, at, "%s counts the micro batches" % name)
            return self.rows(node, at, box=bool(HOLDS.search(name)), rank=max(self.dimensions(name, at), self.given_dimensions(name, at, depth, active)))
        found = []
        for call, s, ahead in self.sites(at)[:WIDTH]:
            given = self.bound(call, s, at, name, ahead)
            if given and given[0] == "value":
                found.append(self.loss(given[1], given[2], depth, n, active))
        if found:
            return self.either(found, node, at)
        if plain_default or CONFIG.search(name) or MODEL.search(name):
            return self.free(node, at)
        if default is None:
            return dict(self.doubtful(node, at), handed=True)
        return self.free(node, at) if constant(default)[1] or name not in self.changes(at) else self.doubtful(default, at, "%s is kept from one call to the next" % name)

    def dimensions(self, name, scope):
        """The number of dimensions of a tensor whose shape is unpacked: B, T, C = x.shape."""
        for s in walk(scope.node):
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Tuple) and text(s.value) in (name + ".shape", name + ".size()"):
                return len(s.targets[0].elts)
        return 1

    def given_dimensions(self, name, at, depth, active):
        """The least number of dimensions of a layer's input, by the inputs that the models with
        the layer give it."""
        place = at.params().index(name) - 1 if name in at.params() else -1
        holds = self.once_known("held", self.layers_held).get(at.cls, ()) if at.name == "forward" and place >= 0 else ()
        given = [self.loss(call.args[place], s, depth, None, active) for attr in holds for call, s in self.calls.get(attr, [])[:WIDTH] if dotted(call.func) == "self." + attr and place < len(call.args)]
        return min((g["rank"] for g in given if g is not None and g["kind"] == "rows"), default=1)

    def layers_held(self):
        """The attributes that hold a layer of each of the job's own classes."""
        found = {}
        for attr, stores in self.stores.items():
            for value, _, owner in stores:
                if owner == "self" and isinstance(value, ast.Call) and last(value.func) in self.classes:
                    found.setdefault(last(value.func), []).append(attr)
        return found

    # Operations.

    def dims(self, given, of, node, scope):
        """The dimensions, if they are known and none is that of the samples, or None."""
        dims = []
        if isinstance(given, ast.Call) and last(given.func) in ("tuple", "list") and given.args:
            given = given.args[0]
        if isinstance(given, ast.Call) and last(given.func) == "range" and len(given.args) == 2 and constant(given.args[0]) == (1, True) and of["at"] == 0:
            return [1] * max(1, of["rank"] - 1)  # all but that of the samples
        for d in given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]:
            value, known = constant(d)
            if not known or type(value) is not int or value == of["at"]:
                return None
            if value < 0:
                if value == -1 and of.get("flat") or -value > max(1, of["rank"] - 1) or of["rank"] + value == of["at"] and of["at"] > 0:
                    return None
            dims.append(value)
        return dims

    def along(self, call, name, of, args, scope):
        """The result of an operation along dimensions other than that of the samples; None if that
        is not known."""
        words = {k.arg: k.value for k in call.keywords}
        where, default = ALONG[name]
        given = words.get("dim", words.get("dims", words.get("axis", args[where] if len(args) > where else None)))
        if given is None and default is not None:
            given = ast.Constant(value=default)
        if given is None or default == -1 and of["rank"] < 2 and isinstance(given, ast.Constant) and given.value == -1 and not hasattr(given, "lineno") or name == "split" and isinstance(constant(args[0])[0] if args else None, str):
            return None
        dims = self.dims(given, of, call, scope)
        if dims is None:
            return None
        keep = constant(words.get("keepdim", ast.Constant(value=False)))[0] is True or any(constant(a)[0] is True for a in args[where + 1:])
        less = 0 if name not in REDUCING or keep else len(dims)
        before = sum(1 for d in dims if 0 <= d < of["at"]) if less else 0
        return self.rows(call, scope, of["at"] - before, max(1, of["rank"] - less), box=name in LISTS | SEVERAL, flat=of.get("flat") and not less)

    def shaped(self, call, name, of, args, scope, follow):
        """The result of a change of the shape; None if it is not known."""
        args = args[0].elts if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)) else args
        numbers = [constant(a)[0] for a in args]
        at, rank = of["at"], of["rank"]
        if name in ("view", "reshape", "unflatten"):
            if name == "unflatten":
                return self.rows(call, scope, at, rank + 1) if numbers and numbers[0] not in (0, None) and at == 0 else None
            first = args[0] if args else None
            if at != 0 or first is None:
                return None
            size = follow(first.value if isinstance(first, ast.Starred) else first)
            known = isinstance(first, ast.Starred) or numbers[0] == -1 or numbers[0] is None and size is not None and (size.get("count") or "shape" in text(first) or "size" in text(first)) or isinstance(first, ast.Attribute) and first.attr == "shape"
            return self.rows(call, scope, 0, len(args) if not isinstance(first, (ast.Starred, ast.Attribute)) else rank, flat=len(args) == 1 and numbers[0] == -1) if known else None
        if name == "flatten":
            return self.rows(call, scope, 0, 1, flat=not numbers or numbers[0] == 0 and len(numbers) == 1) if at == 0 else None
        if name == "squeeze":
            return self.rows(call, scope, at, max(1, rank - 1), flat=rank < 3 and (not numbers or numbers[0] == -1)) if numbers[:1] != [at] else None
        if name == "unsqueeze":
            d = numbers[0] if numbers else {k.arg: constant(k.value)[0] for k in call.keywords}.get("dim")
            return self.rows(call, scope, at + 1 if d is not None and 0 <= d <= at else at, rank + 1) if type(d) is int and (d >= 0 or d == -1 or -d <= rank) else None
        if name in ("transpose", "swapaxes", "swapdims", "t", "movedim"):
            a, b = (0, 1) if name == "t" else numbers if len(numbers) == 2 else (None, None)
            if type(a) is not int or type(b) is not int:
                return None
            if a < 0 or b < 0:
                return self.rows(call, scope, at, rank) if a < 0 and b < 0 and at == 0 and rank > max(-a, -b) else None
            if name == "movedim" and at in range(min(a, b), max(a, b) + 1):
                return None
            return self.rows(call, scope, b if at == a else a if at == b else at, max(rank, a + 1, b + 1))
        if name == "permute":
            return self.rows(call, scope, numbers.index(at), len(numbers)) if at in numbers else None
        return None

    def joins(self, call, name, args, scope, found):
        """cat and stack: samples along the first dimension only with others."""
        words = {k.arg: k.value for k in call.keywords}
        dim, known = constant(words.get("dim", words.get("axis", args[1] if len(args) > 1 else ast.Constant(value=0))))
        if found is None or found["kind"] != "rows":
            return found
        parts = args[0].elts if isinstance(args[0], (ast.List, ast.Tuple)) else []
        alone = any(self.loss(p.value if isinstance(p, ast.Starred) else p, scope, 0, None, ())["kind"] == "free" for p in parts)
        if not known or type(dim) is not int or name in ("cat", "concat", "concatenate") and dim == found["at"] and alone or dim < -1 or dim == -1 and found.get("flat") and name not in ("stack",):
            return None
        if name == "stack":
            return self.rows(call, scope, found["at"] + (0 <= dim <= found["at"]), found["rank"] + 1)
        return self.rows(call, scope, found["at"], found["rank"])

    def multiplied(self, node, left, right, scope):
        """A product of matrices."""
        found = self.together([left, right], node, scope)
        if found["kind"] != "rows" or found.get("at"):
            return found if found["kind"] != "rows" else self.doubtful(node, scope)
        both = left["kind"] == right["kind"] == "rows"
        if right["kind"] == "rows" and not both and right["rank"] < 3 or left.get("flat"):
            return self.doubtful(node, scope)
        return found

    def summation(self, call, scope, found):
        """einsum: each operand with samples begins with their letter, and so does the result."""
        words = str(constant(call.args[0])[0]).replace(" ", "") if call.args else ""
        if "->" not in words:
            return None
        given, out = words.split("->")
        letters = [g[:1] for g, f in zip(given.split(","), found) if f is not None and f["kind"] == "rows"]
        if len(given.split(",")) != len(found) or len(set(letters)) != 1 or not letters or out[:1] != letters[0] or letters[0] == ".":
            return None
        return self.rows(call, scope, 0, len(out))

    def subscripted(self, node, whole, scope, follow):
        """A part of a value that has samples."""
        key, at, rank = index(node), whole["at"], whole["rank"]
        elements = list(key.elts) if isinstance(key, ast.Tuple) else [key]
        value, known = constant(elements[0])
        if len(elements) == 1:
            if isinstance(value, str) or whole.get("box") and (known and type(value) is int and value >= 0 or not isinstance(key, ast.Slice) and follow(key)["kind"] == "free"):
                return whole
        place, moved = 0, 0
        for e in elements:
            value, known = constant(e)
            if value is Ellipsis or isinstance(e, ast.Constant) and e.value is Ellipsis:
                if place <= at:
                    return whole if elements[0] is e else None
                break
            if known and value is None:
                moved += place <= at
                rank += 1
                continue
            whole_slice = isinstance(e, ast.Slice) and e.lower is None and e.upper is None and e.step is None
            if place == at and not whole_slice:
                inner = follow(e) if not isinstance(e, ast.Slice) else None
                if isinstance(e, ast.Call) and self.numbered(e, scope) or len(elements) > 1 and self.numbered(e, scope):
                    return self.rows(node, scope, 0, 1)
                if inner is not None and inner["kind"] in ("rows", "masked"):
                    return self.kind("masked", node, scope, "it is taken over some of the elements, %s" % text(node)[:40])
                return None
            if place != at and not isinstance(e, ast.Slice):
                if follow(e)["kind"] != "free":
                    return None
                if known:
                    moved -= place < at
                    rank -= 1
            place += 1
        rank = max(rank, place + rank - whole["rank"])
        return self.rows(node, scope, at + moved, max(rank, 1), flat=whole.get("flat") and rank <= whole["rank"])


BUILTINS = {"range", "len", "int", "float", "max", "min", "sum", "zip", "enumerate", "True", "False", "None", "torch", "nn", "F", "np", "math", "str", "bool", "print", "isinstance", "getattr", "hasattr", "any", "all", "abs", "round", "list", "dict", "tuple"}
