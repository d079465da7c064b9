# Lets a training loop accumulate gradients: the optimizer makes a step, its gradients are set to
# zero, and the learning rate and the log change, after several batches.
ONCE = {"zero_grad", "unscale_", "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value", "clip_gradient", "clip_gradients", "update_parameters", "update_ema", "ema_update", "step_update"}
STEPS_ALONE = re.compile(r"optim|sched|scaler|warm|(^|[._\[])lr|(^|[._])opt", re.I)
PROFILES = re.compile(r"prof", re.I)
AVERAGES = re.compile(r"(^|[._])(ema|swa|averaged?)(_?model)?s?$|model_?ema", re.I)
RATES = re.compile(r"(adjust|set|update|warm|cosine|change|schedule)\w*(lr|rate|learn)|^lr_|_lr$", re.I)
LOGS = re.compile(r"^(print|info|debug|log|add_scalars?|add_image|add_histogram|log_metrics?|track|print_log)$")
MADE = re.compile(r"LR$|^ReduceLROnPlateau$|Scheduler$|^get_\w*schedule|^create_scheduler|^create_lr|^(Adam\w*|SGD|RMSprop|Adagrad|Adadelta|Lion|LAMB|Lamb|NAdam|RAdam|Adafactor|LBFGS|ASGD|Rprop|Muon|AdaBelief|Ranger\w*)$|^GradScaler$")
SHUFFLES = {"shuffle", "sampler", "batch_sampler"}
METERS = re.compile(r"meter|progress|tqdm|bar\b|log|print|write|format|info|str$|set_|round|time", re.I)


def sliced(script, loop, given):
    """The width of the slices that a loop reads, as x[i:i + size] in a loop over range(0, len(x), size), or
    x[i * size:(i + 1) * size] in one over range(len(x) // size)."""
    target = getattr(loop, "target", None)
    name = target.elts[-1] if isinstance(target, ast.Tuple) else target
    if not (isinstance(given, ast.Call) and last(given.func) in ("range", "trange") and isinstance(name, ast.Name)):
        return None
    if len(given.args) == 3 and constant(given.args[0]) == (0, True):
        step = given.args[2]
        return step if (whole(step) or constant(step)[1]) and text(step) in [text(w) for w in widths(loop)] else None
    bounds = script.origins(given.args[0], script.scope(given)) if len(given.args) == 1 and isinstance(target, ast.Name) else []
    floor = bounds[0][0] if len(bounds) == 1 else None
    if isinstance(floor, ast.BinOp) and isinstance(floor.op, ast.FloorDiv) and whole(floor.right) and text(floor.right) in [text(w) for w in widths(loop)]:
        return floor.right
    return None


def assigned(node):
    """What an assignment with one target sets."""
    return text(node.target if isinstance(node, ast.AugAssign) else node.targets[0])


class Accumulation:
    """The change of one loop over batches."""

    def __init__(self, script, loop, backwards, undivided, inner=None, call=None):
        self.s, self.loop, self.backwards, self.undivided = script, loop, backwards, undivided
        self.inner, self.call = inner, call  # the function that the loop calls for each batch, and the call
        self.function, self.gated, self.runs, self.flagged, self.optimizers = script.scope(loop), set(), 0, "", set()

    def change(self):
        loop, s = self.loop, self.s
        if isinstance(loop, ast.AsyncFor) or loop.orelse:
            raise Unclear("the loop has an else", loop)
        self.header()
        self.expectations()
        self.length()
        self.find_gated()
        self.by = s.argument("accum", 'type=int, default=1, help="batches for each optimizer step"', loop, 0)
        self.indexed()
        size = "len(%s)" % self.data
        done = "(%s + 1)" % self.i if not self.first else "%s" % self.i if self.first == 1 else "(%s - %d)" % (self.i, self.first - 1)
        now = self.i if not self.first else "(%s - %d)" % (self.i, self.first)
        self.begins = "%s %% %s == 0" % (now, self.by)
        self.ends = "%s %% %s == 0" % (done, self.by)
        self.share = self.by
        if not self.drops:
            self.ends += " or %s == %s" % (done.strip("()"), size)
            self.share = "min(%s, %s - %s // %s * %s)" % (self.by, size, now, self.by, self.by)
        self.handed = {}
        many = self.count_runs(loop.body) > 1
        if many:
            self.flagged = s.fresh("update_now", "is_update_step", "ends_group")
            s.before(loop.body[0], ["%s = %s" % (self.flagged, self.ends)])
        self.sequence(loop.body)
        self.hand()
        if self.drops and not any(self.gates(n, True) for n in self.heads(loop.body)):
            s.before(loop, ["%s.zero_grad()" % o for o in sorted(self.optimizers)])
        Lengths(self).change()

    # The head of the loop.

    def header(self):
        """Finds the index of the loop, and the object that makes the batches, or the step of a loop
        over slices."""
        loop, s = self.loop, self.s
        given, self.i, self.first, self.enumerated, self.step = getattr(loop, "iter", None), "", 0, None, None
        while isinstance(given, ast.Call):
            name = last(given.func)
            if name == "enumerate" and given.args and self.enumerated is None:
                self.enumerated = given
                start = {k.arg: k.value for k in given.keywords}.get("start", given.args[1] if len(given.args) > 1 else None)
                if start is not None:
                    self.first, known = constant(start)
                    if not known or not isinstance(self.first, int):
                        raise Unclear("the index of the loop begins with a number that is not known", loop)
                given = given.args[0]
            elif name in TQDM and given.args:
                given = given.args[0]
            elif name == "log_every" and given.args:
                given = given.args[0]
            else:
                break
        self.step = sliced(s, loop, given)
        if self.step is None and (not isinstance(loop, ast.For) or isinstance(given, ast.Call) and last(given.func) in ("range", "count", "trange")):
            raise Unclear("the loop counts steps, and is not over a loader", loop)
        if self.step is None and not whole(given):
            raise Unclear("the loop is not over a loader with a name: %s" % self.s.code(loop.iter)[:50], loop)
        self.data, self.given = text(given), given
        self.made = s.origins(given, self.function) if self.step is None else []
        if self.step is None and not self.made or not all(isinstance(n, ast.Call) and last(n.func).endswith("DataLoader") for n, _ in self.made):
            raise Unclear("%s is not seen to be a DataLoader" % self.data, loop)
        if self.step is not None and len(given.args) == 1 and self.enumerated is None:
            self.i = loop.target.id
        if self.enumerated is not None:
            target = loop.target
            if not isinstance(target, ast.Tuple) or not isinstance(target.elts[0], ast.Name):
                raise Unclear("the index of the loop has no name", loop)
            self.i = target.elts[0].id
        for node in [n for b in loop.body for n in inside(b)]:
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store) and (text(node) in (self.i, self.data) or self.step is not None and text(node) in reads_of(given)):
                raise Unclear("%s changes in the loop" % text(node), node)

    def length(self):
        """Requires that the number of batches is known, and finds out whether the last one may be
        short."""
        words = [self.words(n, at) for n, at in self.made]
        self.drops = len(self.given.args) == 1 if self.step is not None else all(constant(w.get("drop_last"))[0] is True for w in words if w.get("drop_last") is not None) and all(w.get("drop_last") is not None for w in words)
        for w in words:
            if "drop_last" in w and not isinstance(constant(w["drop_last"])[0], bool):
                raise Unclear("whether the last batch is dropped is not known (drop_last)", w["drop_last"])
        measured = any(isinstance(n, ast.Call) and last(n.func) == "len" and n.args and text(n.args[0]) == self.data for n in self.s.nodes)
        for w, (n, at) in zip(words, self.made):
            shuffled = any(k in w and constant(w[k])[0] not in (False, None) for k in ("shuffle",)) or any(k in w and constant(w[k]) != (None, True) for k in ("sampler", "batch_sampler"))
            if not (shuffled or measured or self.sized(w.get("dataset"), at)):
                raise Unclear("whether %s has a length is not certain: its dataset may be an IterableDataset" % self.data, n)

    def words(self, call, scope):
        """The arguments of a DataLoader, those of a dictionary included."""
        found = {k.arg: k.value for k in call.keywords if k.arg}
        for name, value in zip(("dataset", "batch_size", "shuffle", "sampler", "batch_sampler"), call.args):
            found[name] = value
        for k in call.keywords:
            if k.arg is None:
                for of, _ in self.s.origins(k.value, scope):
                    if isinstance(of, ast.Dict):
                        found.update({constant(key)[0]: v for key, v in zip(of.keys, of.values) if key is not None})
                    elif isinstance(of, ast.Call) and last(of.func) == "dict":
                        found.update({w.arg: w.value for w in of.keywords if w.arg})
                    else:
                        raise Unclear("the arguments of %s are not known" % text(call.func), call)
        return found

    def sized(self, dataset, scope):
        """Whether a dataset is seen to have a length."""
        found = self.s.origins(dataset, scope) if dataset is not None else []
        for n, at in found:
            name = last(n.func) if isinstance(n, ast.Call) else ""
            local = [c for c in self.s.nodes if isinstance(c, ast.ClassDef) and c.name == name]
            if local and any(isinstance(f, ast.FunctionDef) and f.name == "__len__" for f in local[0].body):
                continue
            if local or not (name in ("TensorDataset", "Subset", "random_split", "ImageFolder", "ConcatDataset") or "datasets." in dotted(getattr(n, "func", n)) and "load_dataset" not in name or self.s.imports.get(name, ("",))[0] == "torchvision.datasets"):
                return False
        return bool(found)

    def indexed(self):
        """Gives the loop an index, if it has none."""
        loop, s = self.loop, self.s
        if self.i:
            return
        self.i = s.fresh("batch_index", "batch_number", "micro_batch")
        target = s.code(loop.target)
        opening, closing = s.start(loop.target), s.end(loop.target)
        parens = isinstance(loop.target, (ast.Tuple, ast.List)) and not target.startswith(("(", "["))
        s.edit(opening, opening, "%s, %s" % (self.i, "(" if parens else ""))
        if parens:
            s.edit(closing, closing, ")")
        s.edit(s.start(loop.iter), s.start(loop.iter), "enumerate(")
        s.edit(s.end(loop.iter), s.end(loop.iter), ")")

    # What happens once for each step.

    def body(self):
        """The nodes of the loop, and of the function that it calls for each batch."""
        return [n for b in self.loop.body + (self.inner.body if self.inner is not None else []) for n in inside(b)]

    def within(self):
        """Writes the changes of the function that the loop calls for each batch: its parameters
        stand for the conditions of the loop."""
        s, call = self.s, self.call
        if self.i and any(isinstance(n, ast.Name) and n.id == self.i for a in call.args + [k.value for k in call.keywords] for n in ast.walk(a)):
            raise Unclear("the number of the batch is given to %s()" % self.inner.name, call)
        if self.inner.args.vararg or self.inner.args.kwarg or self.inner.args.kwonlyargs or self.inner.decorator_list:
            raise Unclear("the parameters of %s() are not known" % self.inner.name, self.inner)
        for n in inside(self.inner):
            if isinstance(n, ast.Return) and s.above[id(n)] is not self.inner:
                raise Unclear("%s() may end before the step" % self.inner.name, n)
        outer = self.begins, self.flagged or self.ends, self.share
        names = s.fresh("begin", "begins_step", "is_first"), s.fresh("update", "makes_step", "is_last"), s.fresh("parts", "step_parts", "n_parts")
        self.handed = dict(zip(names, outer))
        self.begins, self.flagged, self.share = names
        self.sequence(self.inner.body)
        self.begins, self.flagged, self.share = outer[0], outer[1] if outer[1] != self.ends else "", outer[2]

    def hand(self):
        """Adds the parameters that the function uses, and their values to the call."""
        used = {n for n in self.handed if any(re.search(r"\b%s\b" % n, e[3]) for e in self.s.edits)}
        for name, value in self.handed.items():
            if name in used:
                self.s.insert_last(self.inner, self.inner.args.args, self.inner.args.defaults, "%s=%s" % (name, "1" if value is self.share else "True"))
                self.s.insert_last(self.call, self.call.args + [k.value for k in self.call.keywords], [], "%s=%s" % (name, value))

    def expectations(self):
        body = self.body()
        self.names = {n.id for n in body + (inside(self.loop.target) if isinstance(self.loop, ast.For) else []) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if self.inner is not None:  # its parameters that follow from the batch
            words = [p.arg for p in self.inner.args.args if p.arg != "self"]
            given = list(zip(words, self.call.args)) + [(k.arg, k.value) for k in self.call.keywords]
            self.names |= {word for word, value in given if reads_of(value) & self.names}
        self.schedulers = False
        attacks = {self.s.scope(n) for n in self.s.elsewhere if is_backward(n) and is_function(self.s.scope(n))}
        for node in body:
            if not isinstance(node, ast.Call):
                continue
            if any(self.runs_other(node, f) for f in attacks):
                raise Unclear("%s() has a backward pass, too" % text(node.func), node)
            if last(node.func) == "step" and self.once(node):
                of = self.of(node)
                if node.args and not of.startswith("scaler") and isinstance(node.args[0], (ast.Name, ast.Lambda)) and "closure" in text(node.args[0]):
                    raise Unclear("the optimizer computes its gradients itself (%s)" % text(node)[:40], node)
                if of:
                    self.optimizers.add(of)
                else:
                    self.schedulers = True
        if not self.optimizers:
            outer = [c for c in calls_in(self.s.above[id(self.loop)]) if last(c.func) == "step" and c.lineno > self.loop.end_lineno]
            raise Unclear("it accumulates gradients already: the optimizer's step is behind the loop" if outer else "no optimizer makes a step in this loop", self.loop)
        if len(self.optimizers) > 1 and len(self.backwards) > 1:
            raise Unclear("several optimizers make steps in this loop: %s" % ", ".join(sorted(self.optimizers)), self.loop)
        if not any(isinstance(n, ast.Call) and last(n.func) == "zero_grad" for n in body):
            raise Unclear("nothing sets the gradients to zero in this loop", self.loop)

    def runs_other(self, call, function):
        """Whether a call in the loop runs a function of a module."""
        s, name, of = self.s, last(call.func), self.s.above[id(function)]
        if not isinstance(of, ast.ClassDef):
            return name == function.name and (isinstance(call.func, ast.Name) or text(call.func.value) in s.imports)
        made = [last(n.func) for n, _ in s.origins(call.func.value if isinstance(call.func, ast.Attribute) else call.func, s.scope(call)) if isinstance(n, ast.Call)]
        return of.name in made

    def of(self, call):
        """The optimizer of a call of step; empty for a schedule."""
        base = call.func.value
        if re.search("scaler", text(base), re.I):
            return text(call.args[0]) if call.args else text(base)
        made = [last(n.func) for n, _ in self.s.origins(base, self.s.scope(call)) if isinstance(n, ast.Call)]
        if any(re.search(r"LR$|[Ss]chedule|Plateau$", m) for m in made) or not any(MADE.search(m) for m in made) and re.search(r"sched|warm|(^|[._])lr", text(base), re.I):
            return ""
        if any(m == "LBFGS" for m in made):
            raise Unclear("LBFGS computes its gradients itself", call)
        return text(base)

    def once(self, call):
        """Whether a call is to run once for each step."""
        name = last(call.func)
        base = text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if name in ("step", "step_update"):
            if PROFILES.search(base):
                return False
            made = [last(n.func) for n, _ in self.s.origins(call.func.value, self.s.scope(call)) if isinstance(n, ast.Call)] if base else []
            if STEPS_ALONE.search(base) or any(MADE.search(m) for m in made):
                return True
            raise Unclear("it is not known what %s() does" % text(call.func), call)
        if name == "update":
            return bool(re.search("scaler", base, re.I) or AVERAGES.search(base))
        return name in ONCE

    def find_gated(self):
        """The names and counters that change once for each step."""
        body = self.body()
        for node in body:
            if self.counts(node):
                self.gated.add(assigned(node))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self.once(node.value):
                self.gated |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        self.counters = {assigned(n) for n in body if self.counts(n)}
        self.divisors = {assigned(n) for n in body if self.increments(n)} - self.counters

    def counts(self, node):
        """Whether a statement counts steps, rather than what an average is divided by."""
        if not self.increments(node):
            return False
        name = assigned(node)
        for n in self.s.nodes:
            if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Div, ast.FloorDiv)) and name in reads_of(n.right) and ("." in name or self.s.scope(n) is self.function):
                return False
        return True

    def increments(self, node):
        """Whether a statement of the loop adds one to a number."""
        one = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and constant(node.value) == (1, True) and isinstance(node.target, (ast.Name, ast.Attribute))
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
            one = text(node.value.left) == text(node.targets[0]) and constant(node.value.right) == (1, True)
        return one and self.s.statement(node) in [s for b in self.s_blocks() for s in b]

    def s_blocks(self):
        """The lists of statements of the loop, not those of loops in it."""
        todo = [self.loop.body] + ([self.inner.body] if self.inner is not None else [])
        while todo:
            block = todo.pop()
            yield block
            for s in block:
                if isinstance(s, (ast.If, ast.With, ast.Try)):
                    todo += [b for b in (s.body, getattr(s, "orelse", []), getattr(s, "finalbody", [])) if b]

    # The statements of the loop.

    def has_backward(self, node):
        return any(n in self.backwards or n is self.call for n in inside(node))

    def parts(self, block):
        places = [n for n, s in enumerate(block) if self.has_backward(s)]
        if len(places) != 1:
            raise Unclear("several backward passes are in one loop", block[places[1]])
        return block[:places[0]], block[places[0]], block[places[0] + 1:]

    def heads(self, block):
        """The statements before the backward pass."""
        before, core, _ = self.parts(block)
        if self.calls_inner(core):
            before = before + self.heads(self.inner.body)
        if isinstance(core, ast.With):
            before = before + self.heads(core.body)
        elif isinstance(core, ast.If):
            for branch in (core.body, core.orelse):
                if any(self.has_backward(b) for b in branch):
                    before = before + self.heads(branch)
        return before

    def calls_inner(self, core):
        """Whether a statement is the call of the function that trains with a batch."""
        return self.call is not None and isinstance(core, (ast.Expr, ast.Assign, ast.AugAssign)) and any(n is self.call for n in inside(core))

    def count_runs(self, block):
        """How many conditions for the step are in a block, of branches the most."""
        before, core, behind = self.parts(block)
        runs, open_run = 0, False
        for s in behind:
            now = self.gates(s, False)
            runs, open_run = runs + (now and not open_run), now
        if self.calls_inner(core):
            runs += self.count_runs(self.inner.body)
        if isinstance(core, ast.With):
            runs += self.count_runs(core.body)
        elif isinstance(core, ast.If):
            runs += max([self.count_runs(b) for b in (core.body, core.orelse) if any(self.has_backward(s) for s in b)])
        return runs

    def sequence(self, block):
        before, core, behind = self.parts(block)
        self.grouped(before, True)
        if self.calls_inner(core):
            self.within()
        elif isinstance(core, ast.Expr):
            self.divide(core)
        elif isinstance(core, ast.With):
            if any("scale_loss" in text(i.context_expr) for i in core.items):
                raise Unclear("apex scales the loss", core)
            if any("accumulate" in text(i.context_expr) for i in core.items):
                raise Unclear("it accumulates gradients already", core)
            self.sequence(core.body)
        elif isinstance(core, ast.If):
            self.branches(core)
        else:
            raise Unclear("the backward pass is in a %s" % type(core).__name__.lower(), core)
        self.grouped(behind, False)

    def branches(self, core):
        """A backward pass under a condition, which must not depend on the batch."""
        if reads_of(core.test) & (self.names | {self.i}):
            raise Unclear("the backward pass depends on the batch: if %s" % text(core.test)[:50], core)
        for branch in (core.body, core.orelse):
            if any(self.has_backward(b) for b in branch):
                self.sequence(branch)
            elif any(self.gates(s, False) for s in branch):
                raise Unclear("the optimizer makes steps without a backward pass", branch[0])
            else:
                self.grouped(branch, False)

    def grouped(self, block, before):
        """Puts what runs once for each step under a condition."""
        run = []
        for s in list(block) + [None]:
            if s is not None and self.gates(s, before):
                run.append(s)
                continue
            if run:
                self.wrap(run, before)
                run = []
            if s is not None:
                self.stays(s, before)

    def wrap(self, run, before):
        test = self.begins if before else self.flagged or self.ends
        unit = self.s.unit(self.loop)
        self.s.indent(run[0])
        self.s.before(run[0], ["if %s:" % test])
        self.s.shift(run[0], run[-1], unit)

    def divide(self, core):
        call = core.value
        of, s = call.func.value, self.s
        if self.undivided:
            return
        self.summed(of.args[0] if isinstance(of, ast.Call) and last(of.func) == "scale" and of.args else of)
        if isinstance(of, ast.Call) and last(of.func) == "scale":
            loss = of.args[0]
            opened = "(" if not simple(loss) else ""
            if opened:
                s.edit(s.start(loss), s.start(loss), "(")
            s.edit(s.end(loss), s.end(loss), (")" if opened else "") + " / " + self.share)
            return
        dot = s.bytes.rindex(b".", s.end(of), s.end(call.func))
        s.edit(s.start(core), s.start(core), "(")
        s.edit(dot, dot, " / " + self.share + ")")

    def summed(self, loss):
        """Notes a loss that is written as a sum."""
        todo = [n for n, _ in self.s.origins(loss, self.s.scope(loss))]
        while todo:
            n = todo.pop()
            if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Add, ast.Sub, ast.Mult)):
                todo += [n.left, n.right]
            elif isinstance(n, ast.Call):
                made = [n] + [m for m, _ in self.s.origins(n.func, self.s.scope(n)) if isinstance(m, ast.Call)]
                if last(n.func) == "sum" and isinstance(n.func, ast.Attribute) or any(constant(k.value) == ("sum", True) for m in made for k in m.keywords if k.arg == "reduction"):
                    self.s.summed = "whether the loss is a mean over the samples is not certain: %s" % text(n)[:50]

    def gates(self, s, before):
        """Whether a statement runs once for each step."""
        if isinstance(s, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            raise Unclear("a function is defined in the loop", s)
        if self.counts(s):
            return True
        steps = [c for c in calls_in(s) if self.once(c)]
        if isinstance(s, ast.Expr) and steps:
            return True
        if isinstance(s, ast.Assign) and steps:
            if isinstance(s.value, ast.Call) and s.value in steps:
                return True
            raise Unclear("a part of a step is in an expression", s)
        if isinstance(s, (ast.If, ast.With, ast.For)) and steps:
            return self.gates_all(s, before)
        reads = reads_of(s)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and RATES.search(last(s.value.func)) or isinstance(s, ast.For) and "param_groups" in text(s.iter) and any(
                isinstance(t, ast.Subscript) for t in self.stored(s)):
            return self.sets_rate(s, before)
        if before:
            return isinstance(s, ast.If) and bool(reads_of(s.test) & self.counters) and not (reads_of(s.test) & self.names - self.counters)
        if reads & self.gated:
            return True
        return isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and bool(LOGS.match(last(s.value.func))) and "tqdm" not in text(s.value.func)

    def stored(self, s):
        return [t for n in inside(s) if isinstance(n, (ast.Assign, ast.AugAssign)) for t in (n.targets if isinstance(n, ast.Assign) else [n.target])]

    def gates_all(self, s, before):
        """A compound statement with a part of the step, all of which has to be one."""
        if isinstance(s, ast.If):
            reads = reads_of(s.test)
            if self.i in reads and any(isinstance(n, ast.Mod) for n in ast.walk(s.test)):
                raise Unclear("it accumulates gradients already: if %s" % text(s.test)[:50], s)
            if reads & (self.names - self.gated) or self.i in reads:
                raise Unclear("the step depends on the batch: if %s" % text(s.test)[:50], s)
        for part in list(s.body) + list(getattr(s, "orelse", [])):
            if not self.gates(part, before) and not isinstance(part, ast.Pass):
                if [c for c in calls_in(part) if last(c.func) in ("step", "zero_grad")] or isinstance(part, (ast.Continue, ast.Break)):
                    raise Unclear("a part of the step is in a block with other statements", part)
                if not self.harmless(part):
                    raise Unclear("a part of the step is in a block with other statements", part)
        return True

    def harmless(self, s):
        return isinstance(s, (ast.Assign, ast.Expr)) and not calls_in(s) or isinstance(s, ast.Expr) and bool(LOGS.match(last(getattr(s.value, "func", None))))

    def sets_rate(self, s, before):
        """A statement that sets the learning rate."""
        if self.i and self.i in reads_of(s):
            for n in inside(s):
                if isinstance(n, ast.Name) and n.id == self.i:
                    above = self.s.above[id(n)]
                    if not (before and isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div) and above.left is n and text(above.right) in ("len(%s)" % self.data,)):
                        raise Unclear("the learning rate follows from the number of the batch", s)
        elif reads_of(s) & (self.names - self.counters):
            raise Unclear("the learning rate follows from values of the loop", s)
        return True

    def stays(self, s, before):
        """Checks a statement that runs for each batch."""
        nodes = inside(s)
        if before and not (isinstance(s, ast.Expr) and LOGS.match(last(getattr(s.value, "func", None)))):
            self.follows_steps(s)
        for node in nodes:
            if isinstance(node, ast.Continue) and (s is node or not self.in_loop(node, s)):
                raise Unclear("it leaves out the rest of the loop for some batches", node)
            if isinstance(node, (ast.Break, ast.Return)) and s is not node and not self.in_loop(node, s):
                self.leaves(node, s, before)
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
                raise Unclear("the loop is in a generator", node)
        for t in self.stored(s):
            if re.search(r"\.(grad|data)\b|param_groups", text(t)):
                raise Unclear("it changes weights, gradients or the optimizer: %s" % text(t)[:50], t)
        for call in calls_in(s):
            if not before:
                self.safe(call)
            elif {text(a) for a in call.args + [k.value for k in call.keywords]} & self.optimizers and not SAFE.search(last(call.func).lower()):
                raise Unclear("it is not known what %s does with the optimizer" % text(call)[:50], call)
        if isinstance(s, ast.If) and self.i and self.i in reads_of(s.test):
            self.scaled(s)

    def follows_steps(self, s):
        """Requires that what is computed before the backward pass does not follow from a number of batches."""
        for name in sorted(reads_of(s) & self.divisors):
            if not self.increments(s):
                raise Unclear("the loss may follow from %s, which counts batches and is a divisor" % name, s)
        for n in inside(s):
            if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and reads_of(n.left) & self.counters:
                parts = [m for name in walk(n.right) if isinstance(name, (ast.Name, ast.Attribute)) for m, _ in self.s.origins(name, self.s.scope(name))] + [n.right]
                if any("len(%s)" % self.data in text(m) for m in parts):
                    raise Unclear("the loss may follow from the part of the batches that are done: %s" % text(n)[:50], s)

    def in_loop(self, node, top):
        node = self.s.above[id(node)]
        while node is not top:
            if isinstance(node, (ast.For, ast.While)):
                return True
            node = self.s.above[id(node)]
        return isinstance(top, (ast.For, ast.While))

    def leaves(self, node, s, before):
        """A break, which must not depend on the number of the batch."""
        test = s.test if isinstance(s, ast.If) else None
        logged = test is not None and any(isinstance(n, ast.Mod) for n in ast.walk(test))
        if before and (test is None or reads_of(test) & self.names or self.i in reads_of(test)):
            raise Unclear("it ends the loop before the step", node)
        if test is not None and self.i and self.i in reads_of(test) and not logged:
            raise Unclear("the number of the batch ends the loop: if %s" % text(test)[:50], node)

    def safe(self, call):
        """Requires that a call after the backward pass does not change the training."""
        name = last(call.func)
        if SAFE.search(name.lower()):
            return
        of = {text(a) for a in call.args + [k.value for k in call.keywords]}
        if isinstance(call.func, ast.Attribute):
            of.add(text(call.func.value))
        training = self.optimizers | self.models()
        stateful = name.endswith("_") and not name.startswith("_") and name not in ("requires_grad_",) or "parameters" == name
        if of & training or stateful:
            raise Unclear("it is not known what %s does after the backward pass" % text(call)[:50], call)

    def models(self):
        """The names of the models whose parameters the script trains."""
        return {text(n.func.value) for n in self.s.nodes if isinstance(n, ast.Call) and last(n.func) == "parameters" and isinstance(n.func, ast.Attribute)}

    def scaled(self, s):
        """Lets what happens each N batches happen each N steps."""
        scripts = self.s
        mods = [n for n in inside(s.test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) and self.i in reads_of(n.left)]
        for mod in mods:
            every = mod.right
            if scripts.code(every) != text(every) and not simple(every):
                raise Unclear("it is not clear when it logs: if %s" % text(s.test)[:50], s)
            scripts.edit(scripts.start(every), scripts.start(every), "(")
            scripts.edit(scripts.end(every), scripts.end(every), " * %s)" % self.by)
            above = scripts.above[id(mod)]
            if isinstance(above, ast.Compare) and above.left is mod and len(above.comparators) == 1:
                at = above.comparators[0]
                minus = isinstance(at, ast.BinOp) and isinstance(at.op, ast.Sub) and constant(at.right) == (1, True) and text(at.left) == text(every)
                if minus or constant(at)[1] and constant(every)[1] and constant(at)[0] == constant(every)[0] - 1 and constant(at)[0] > 0:
                    scripts.edit(scripts.start(at), scripts.end(at), "%s * %s - 1" % (scripts.code(every), self.by))
            for part in s.body:
                for n in inside(part):
                    same = isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and (text(n.right) == text(every) or constant(n.right)[1] and constant(n.right) == constant(every))
                    if same:
                        scripts.edit(scripts.start(n.right), scripts.end(n.right), "(%s * %s)" % (scripts.code(n.right), self.by))


class Counted(Accumulation):
    """The change of one loop over steps, which draws a batch in each: it draws several."""

    DRAWS = re.compile(r"^(next|get_batch|sample_batch|next_batch|randint|randperm|sample)$|get_\w*batch$")

    def header(self):
        self.i = self.loop.target.id if isinstance(self.loop, ast.For) and isinstance(self.loop.target, ast.Name) else ""
        self.made, self.data, self.first, self.step = [], "", 0, None

    def change(self):
        s, loop = self.s, self.loop
        if loop.orelse or self.inner is not None:
            raise Unclear("the loop counts steps, and is not over a loader", loop)
        self.header()
        self.expectations()
        before, core, behind = self.parts(loop.body)
        if not isinstance(core, ast.Expr) or not any(self.has_step(b) for b in behind):
            raise Unclear("the loop counts steps, and its backward pass is in a %s" % type(core).__name__.lower(), core)
        drawn = self.drawn(before, core)
        self.by = s.argument("accum", 'type=int, default=1, help="batches for each optimizer step"', loop, 0)
        moved = [m for m in before[before.index(drawn[0]):] if m not in drawn]
        for m in moved:
            self.move(m, drawn[0])
        s.before(drawn[0], ["for _ in range(%s):" % self.by])
        for part in drawn + [core]:
            s.shift(part, part, s.unit(loop))
        within = {line for part in drawn + [core] + moved for line in range(part.lineno, part.end_lineno + 1)}
        for line in range(drawn[0].lineno, core.lineno):
            if line not in within and s.bytes[s.starts[line - 1]:s.starts[line]].strip().startswith(b"#"):
                s.edit(s.starts[line - 1], s.starts[line - 1], s.unit(loop))
        self.share = self.by
        self.divide(core)

    def has_step(self, node):
        return any(self.once(c) and last(c.func) == "step" for c in calls_in(node))

    def drawn(self, before, core):
        """The statements that draw a batch and compute its loss."""
        needed, drawn = reads_of(core), []
        for s in reversed(before):
            assigned = {n.id for n in inside(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            if assigned & needed:
                drawn.insert(0, s)
                needed |= reads_of(s)
        if widths(self.loop):
            raise Unclear("the batch depends on the number of the step", self.loop)
        if not drawn or not any(self.draws_samples(c) for d in drawn for c in calls_in(d)):
            raise Unclear("the loop counts steps, and no batch is seen to be drawn in it: it may train with all data in each", self.loop)
        for n in [n for d in drawn for n in inside(d)]:
            if isinstance(n, (ast.Break, ast.Continue, ast.Return)) or isinstance(n, ast.Name) and self.i and n.id == self.i:
                raise Unclear("the batch depends on the number of the step", n)
        self.carries(drawn + [core], set())
        for m in before[before.index(drawn[0]):]:
            if m not in drawn and not (isinstance(m, ast.Expr) and self.gates(m, True)):
                raise Unclear("a statement between the batch and its loss may not be for each batch", m)
        if any(self.once(c) for d in drawn for c in calls_in(d)):
            raise Unclear("a part of the step is computed with the loss", drawn[0])
        return drawn

    def draws_samples(self, call):
        """Whether a call draws a batch, by its name, or by what a function of the script does."""
        own = [n for n in self.s.nodes if isinstance(n, ast.FunctionDef) and n.name == last(call.func) and isinstance(call.func, ast.Name)]
        return bool(self.DRAWS.search(last(call.func))) or any(self.DRAWS.search(last(c.func)) for f in own for s in f.body for c in calls_in(s))

    def carries(self, block, known):
        """Requires that the statements of a batch read no name that an earlier batch assigned."""
        for d in block:
            parts = [d]
            if isinstance(d, (ast.If, ast.With, ast.For)):
                parts = [d.test] if isinstance(d, ast.If) else [d.iter, d.target] if isinstance(d, ast.For) else d.items
            nodes = [n for p in parts for n in inside(p)]
            bound = {n.id for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target) if isinstance(n, ast.Name)}
            bound |= {text(a) for c in nodes if isinstance(c, ast.Call) and last(c.func) == "next" for a in c.args}
            read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} | {text(n.target) for n in nodes if isinstance(n, ast.AugAssign)}
            if read & self.names - bound - known:
                raise Unclear("a batch leaves values for the next one: %s" % ", ".join(sorted(read & self.names - bound - known)), d)
            known |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - bound
            if isinstance(d, ast.If):
                after = [set(known), set(known)]
                self.carries(d.body, after[0])
                self.carries(d.orelse, after[1])
                known |= after[0] & after[1]
            elif isinstance(d, (ast.With, ast.For)):
                self.carries(d.body, known)

    def move(self, node, target):
        """Moves a statement of one or more lines before another."""
        s = self.s
        start, end = s.starts[node.lineno - 1], s.starts[node.end_lineno]
        s.indent(node)
        if end > len(s.bytes) or s.bytes[s.end(node):end].strip(b" \r\n") and not s.bytes[s.end(node):end].strip().startswith(b"#"):
            raise Unclear("several statements are in one line", node)
        s.edit(start, end, "")
        at = s.starts[target.lineno - 1]
        s.edit(at, at, s.bytes[start:end].decode("utf-8"))


class Lengths:
    """Lets the length of a schedule that counts steps follow from the number of steps."""

    def __init__(self, loop):
        self.of, self.s, self.changed, self.memo = loop, loop.s, set(), {}

    def change(self):
        if not self.of.schedulers and not self.of.counters:
            return  # nothing counts steps
        if self.of.step is not None:
            raise Unclear("the loop is over slices, and counts its steps or changes the learning rate", self.of.loop)
        for node in self.s.nodes:
            if isinstance(node, ast.Call) and last(node.func) == "len" and isinstance(node.func, ast.Name) and len(node.args) == 1 and self.counts(node.args[0]):
                use = self.use(node, 0)
                if use == "schedule":
                    self.divide(node)
                elif use == "mixed":
                    raise Unclear("%s is the length of a schedule, and of something else" % text(node), node)
                elif use != "batches":
                    raise Unclear("it is not known what %s is for" % text(self.s.statement(node))[:60], node)

    def counts(self, node):
        """Whether an expression is the loader of the loop."""
        if text(node) == self.of.data and self.s.scope(node) is self.of.function:
            return True
        found = self.s.origins(node, self.s.scope(node))
        return bool(found) and all(any(n is m for m, _ in self.of.made) for n, _ in found)

    def use(self, node, depth):
        """What a number of batches is used for."""
        above, below = self.s.above[id(node)], node
        function = self.s.scope(node)
        if is_function(function) and self.rates(function):
            return "schedule"
        while True:
            if depth > 6:
                return "unknown"
            if isinstance(above, ast.Call) and below is not above.func:
                name = last(above.func)
                if SCHEDULE.search(name) or re.search(r"sched|warm|cosine|anneal", name, re.I):
                    return "schedule"
                if METERS.search(name) or METERS.search(text(above.func)):
                    return "batches"
                if name not in ("int", "float", "max", "min", "ceil", "floor", "round", "abs"):
                    return self.passed(above, below, depth)
            elif isinstance(above, ast.BinOp):
                if isinstance(above.op, ast.Mod) and isinstance(above.left, (ast.Constant, ast.JoinedStr)):
                    return "batches"  # a text
                if isinstance(above.op, (ast.Div, ast.FloorDiv, ast.Mod)) and above.right is below:
                    return "batches"  # an average, or a share
                if {n for n in reads_of(above)} & {self.of.i}:
                    return "batches"
            elif isinstance(above, ast.Compare):
                return "batches" if self.of.i in reads_of(above) else "unknown"
            elif isinstance(above, (ast.FormattedValue, ast.JoinedStr)):
                return "batches"
            elif isinstance(above, ast.keyword):
                pass
            elif isinstance(above, (ast.Assign, ast.AnnAssign)):
                targets = above.targets if isinstance(above, ast.Assign) else [above.target]
                return self.named(targets, above, depth)
            elif isinstance(above, ast.Return):
                function = self.s.scope(above)
                if not isinstance(function, ast.FunctionDef):
                    return "unknown"
                return self.joined([self.use(c, depth + 1) for c in self.s.sites(function)])
            elif isinstance(above, ast.Expr):
                return "batches"
            elif not isinstance(above, (ast.UnaryOp, ast.IfExp, ast.BoolOp, ast.Tuple, ast.List)):
                return "unknown"
            above, below = self.s.above[id(above)], above

    def rates(self, function):
        """Whether a function is an argument of a schedule."""
        nodes = [function] if isinstance(function, ast.Lambda) else [n for n in self.s.nodes if isinstance(n, ast.Name) and n.id == function.name and isinstance(n.ctx, ast.Load)]
        for n in nodes:
            above = self.s.above[id(n)]
            above = self.s.above[id(above)] if isinstance(above, (ast.keyword, ast.List)) else above
            if isinstance(above, ast.Call) and above.func is not n and SCHEDULE.search(last(above.func)):
                return True
        return False

    def passed(self, call, node, depth):
        function = self.s.called(call, self.s.scope(call))
        if function is None:
            return "unknown"
        keyword = self.s.above[id(node)] if isinstance(self.s.above[id(node)], ast.keyword) else None
        params = [p.arg for p in function.args.args]
        name = keyword.arg if keyword is not None else params[call.args.index(node)] if node in call.args and call.args.index(node) < len(params) else ""
        if isinstance(node, ast.keyword):
            name = node.arg
        return self.reads(name, function, function, depth) if name else "unknown"

    def named(self, targets, at, depth):
        if len(targets) != 1:
            return "unknown"
        target = targets[0]
        if isinstance(target, ast.Name):
            return self.reads(target.id, self.s.scope(at), at, depth)
        if isinstance(target, ast.Attribute):
            return self.joined([self.use(n, depth + 1) for n in self.s.nodes if isinstance(n, ast.Attribute) and n.attr == target.attr and isinstance(n.ctx, ast.Load)])
        return "unknown"

    def reads(self, name, scope, at, depth):
        key = (name, id(scope))
        if key not in self.memo:
            self.memo[key] = "batches"
            uses = [n for n in self.s.nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and self.s.owner(name, self.s.scope(n)) is scope]
            self.memo[key] = self.joined([self.use(n, depth + 1) for n in uses])
        return self.memo[key]

    def joined(self, uses):
        uses = set(uses)
        if not uses:
            return "batches"
        if "unknown" in uses:
            return "unknown"
        return uses.pop() if len(uses) == 1 else "mixed"

    def divide(self, node):
        s, of = self.s, self.of
        scope = s.scope(node)
        by = of.by if scope is of.function else s.argument("accum", "", node, node.lineno)
        lead, tail = ("", " // " + by) if of.drops else ("-(-", " // " + by + ")")
        if isinstance(s.above[id(node)], (ast.BinOp, ast.UnaryOp)):
            lead, tail = "(" + lead, tail + ")"
        s.edit(s.start(node), s.start(node), lead)
        s.edit(s.end(node), s.end(node), tail)
