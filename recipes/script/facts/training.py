# Training in the sources: the code that makes batches, the gate of the optimizer's step, the
# checkpoints.


SCHEDULE = re.compile(r"(LR|Scheduler)$|^get_\w*schedule|^create_scheduler")
NOTHING, MOST = frozenset(), 64
LEAVES = {ast.Name, ast.Constant}


def handed(call, key, place):
    """The argument of a call, by its name or its place; None if it is not written out."""
    for k in call.keywords:
        if k.arg == key:
            return k.value
    return call.args[place] if len(call.args) > place and not any(isinstance(a, ast.Starred) for a in call.args[:place + 1]) else None


def place(node):
    return node.lineno * 1000 + node.col_offset


def factors(node):
    """The product or quotient of which a number is a factor."""
    above = getattr(node, "gpurun_up", None)
    while above is not None and (isinstance(above, ast.BinOp) and (isinstance(above.op, ast.Mult) or above.left is node) and not isinstance(above.op, (ast.Add, ast.Sub))
                                 or isinstance(above, ast.UnaryOp) or isinstance(above, ast.Call) and node is not above.func):
        node, above = above, getattr(above, "gpurun_up", None)
    return node


def is_backward(node):
    return isinstance(node, ast.Call) and last(node.func) in ("backward", "manual_backward")


def strided(loop):
    """The range of a loop over slices, such as range(0, n, batch_size); with an index only if its step is
    named so, or is the width of the slices."""
    made = loop.iter
    while isinstance(made, ast.Call) and last(made.func) in ("enumerate", "tqdm") and made.args:
        made = made.args[0]
    if isinstance(made, ast.Call) and last(made.func) == "range" and len(made.args) == 3 and constant(made.args[2])[0] != 1 and not windows(loop) and (
            made is loop.iter or BATCH.match(last(made.args[2]).lower()) or text(made.args[2]) in [text(w) for w in widths(loop)]):
        return made
    return None


def widths(loop):
    """The numbers of samples in the slices that a loop reads at its target: b of x[i:i + b],
    x[i:min(i + b, n)], x[slice(i, i + b)] and x[i * b:(i + 1) * b]. Slices of another dimension than the
    first, and those of a loop that hands a state on, such as windows of a text, have no samples."""
    target, made, found = getattr(loop, "target", None), {}, []
    target = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target
    if windows(loop):
        return []
    nodes = [n for b in loop.body for n in walk(b)]
    for n in nodes:
        if isinstance(n, ast.Assign) and len(n.targets) == 1:
            of, value = n.targets[0], n.value
            pairs = zip(of.elts, value.elts) if isinstance(of, ast.Tuple) and isinstance(value, ast.Tuple) else [(of, value)]
            for name, value in pairs:
                made.setdefault(text(name), []).append(value)
    meaning = lambda n: made[n.id][0] if isinstance(n, ast.Name) and len(made.get(n.id, ())) == 1 else n
    for n in nodes:
        bounds = (n.lower, n.upper) if isinstance(n, ast.Slice) and n.step is None else n.args if isinstance(n, ast.Call) and last(n.func) == "slice" and len(n.args) == 2 else (None, None)
        if bounds[0] is None or bounds[1] is None:
            continue
        lower, upper = meaning(bounds[0]), meaning(bounds[1])
        for end in upper.args if isinstance(upper, ast.Call) and last(upper.func) == "min" else [upper]:
            size = width(bounds[0], end) or width(lower, end)
            if size is not None and not (isinstance(size, ast.BinOp) and isinstance(size.op, (ast.Add, ast.Sub))) and (text(lower) == text(target) or isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult) and text(target) in (text(lower.left), text(lower.right))):
                found.append(size)
    return found


def windows(loop):
    """Whether a loop goes along its samples, as along a text, not from some samples to others: it slices
    another dimension than the first, or hands a state on to its next turn, as in out, state = model(x, state)."""
    nodes = [n for b in loop.body for n in walk(b)]
    names = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
    for n in nodes:
        later = index(n).elts[1:] if isinstance(n, ast.Subscript) and isinstance(index(n), ast.Tuple) else ()
        if any(isinstance(e, ast.Slice) and any(isinstance(m, ast.Name) and m.id in names for m in walk(e)) for e in later):
            return True
    assigned, calls = {}, set()
    for n in nodes:
        if isinstance(n, ast.Assign) and len(n.targets) == 1:
            names = [m.id for m in walk(n.targets[0]) if isinstance(m, ast.Name)]
            for name in names:
                uses = any(isinstance(m, ast.Name) and m.id == name for m in walk(n.value))
                assigned[name] = assigned.get(name, True) and uses
                if uses and len(names) > 1 and isinstance(n.value, ast.Call):
                    calls.add(name)
    return any(assigned[name] for name in calls)


# What a random number below it is the index of a sample: of len(data) - block_size, not of a diffusion's steps.
OF_SAMPLES = re.compile(r"\blen\(|\bshape\b|size|data|samples|\bn\b|numel", re.I)


def switch(node):
    """Whether an argument turns something on: True, or 1; None if that is not known."""
    value, known = constant(node) if node is not None else (None, False)
    return bool(value) if known and value is not None else None


def draws(node):
    """The number of random samples that a node draws: b of randint(n, (b,)), choice(n, b), sample(x, b) and
    randperm(n)[:b]; None for another node."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and last(node.value.func) == "randperm" and isinstance(index(node), ast.Slice):
        return index(node).upper if index(node).lower is None else None
    if not isinstance(node, ast.Call) or last(node.func) not in ("randint", "choice", "sample", "choices"):
        return None
    words = {k.arg: k.value for k in node.keywords}
    given = words.get("size", words.get("k", node.args[-1] if len(node.args) > 1 else None))
    if isinstance(given, ast.Tuple):
        return given.elts[0] if len(given.elts) == 1 else None
    return None if last(node.func) == "randint" and "size" not in words and len(node.args) < 3 else given


def width(lower, upper):
    """The distance of a slice's bounds; None if it is not seen."""
    if not isinstance(upper, ast.BinOp):
        return None
    sides = (upper.left, upper.right), (upper.right, upper.left)
    if isinstance(upper.op, ast.Add):
        return next((size for start, size in sides if text(start) == text(lower)), None)
    if isinstance(upper.op, ast.Mult) and isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult):
        for n, size in ((lower.left, lower.right), (lower.right, lower.left)):
            if any(text(s) == text(size) and text(following) in (text(n) + " + 1", "1 + " + text(n)) for following, s in sides):
                return size
    return None


def joined(some, more):
    """The union of two sets, of which only a few elements are kept: omitted ones are doubtful."""
    if not more or not some:
        return some or more
    both = some | more
    return both if len(both) <= MOST else frozenset(sorted(both)[:MOST])


def few(marked):
    return marked if len(marked) <= 4 * MOST else dict(itertools.islice(marked.items(), 4 * MOST))


class Training(Settings):
    """How a job uses its settings."""

    def mark_read(self):
        """Marks the settings that are read."""
        for s in self.settings:
            s["read"] = s["dest"] in self.read or "'" + s["dest"] in self.read and s["kind"] != "argparse" or bool(s.get("param")) and "=" + s["dest"] in self.read

    def mark_idle(self):
        """Marks the settings that this command does not have: of a parser that only code reads which does not run, as
        that of another program in the same file, or of one that reads a file and no command."""
        calls = [pair for name in PARSES for pair in self.calls.get(name, [])]
        read, idle = ([self.parser(c.func.value, s) for c, s in some if isinstance(c.func, ast.Attribute)] for some in (calls, self.idle))
        others = frozenset().union(*[made for made in idle if made])
        files = (self.calls.get("parse_json_file") or self.calls.get("parse_yaml_file")) and not self.calls.get("parse_args_into_dataclasses")
        for n, s in enumerate(self.settings):
            made = self.makers.get(n) or frozenset()
            elsewhere = None not in read and not made.isdisjoint(others) and all(made.isdisjoint(one) for one in read)
            s["idle"] = elsewhere or s["kind"] == "hf" and bool(files) or s["kind"] == "argparse" and bool(self.hydra) and not calls

    def loaded(self):
        """The files that are read as configurations."""
        found = []
        for scope in self.live:
            for call in scope.calls:
                given = call.args[:1] or [k.value for k in call.keywords[:1]]
                if given and (dotted(call.func) in LOADS or last(call.func) in ("fromfile", "merge_from_file", "import_module", "import_config", "compose")):
                    found.append({"file": scope.file.path, "line": call.lineno, "value": plain(opened(self.value(given[0], scope)))})
        return found[:WIDTH]

    def split(self, node):
        """The calls of a node outside the statements in it, and these statements: each part of the
        source is visited once, however deep it is."""
        if id(node) not in self.splits:
            calls, inner, stack = [], [], [node]
            while stack:
                part = stack.pop()
                if part is not node and isinstance(part, ast.stmt):
                    inner.append(part)
                    continue
                if isinstance(part, ast.Call):
                    calls.append(part)
                stack.extend(p for p in children(part) if type(p) not in LEAVES)
            self.splits[id(node)] = calls, inner
        return self.splits[id(node)]

    def callees(self, call):
        name = last(call.func)
        return self.functions.get(name, [])[:4] if name not in ("step", "__init__", "train", "eval", "zero_grad") else []

    def under(self, node, depth=0):
        """The optimizer's steps that a node, or a function that it calls, makes, and whether there
        is a backward pass."""
        key = (id(node), depth)
        if key not in self.courses:
            steps, backward = NOTHING, False
            calls, inner = self.split(node)
            found = [self.under(part, depth) for part in inner]
            for call in calls:
                if self.is_step(call):
                    steps = joined(steps, frozenset([place(call)]))
                backward = backward or is_backward(call)
                if depth < 3:
                    callees = self.callees(call)
                    if not callees and "scaler" in last(call.func):
                        callees = self.functions.get("__call__", [])[:4]
                    found += [self.inside(f, depth + 1) for f in callees]
            for more, back in found:
                steps, backward = joined(steps, more), backward or back
            self.courses[key] = steps, backward
        return self.courses[key]

    def inside(self, f, depth):
        key = (id(f), depth)
        if key not in self.courses:
            self.courses[key] = self.under_all(f.node.body, depth)
        return self.courses[key]

    def under_all(self, nodes, depth=0):
        steps, backward = NOTHING, False
        for node in nodes:
            more, back = self.under(node, depth)
            steps, backward = joined(steps, more), backward or back
        return steps, backward

    def backward_in(self, nodes):
        return any(self.under(node)[1] for node in nodes)

    def is_step(self, call):
        if last(call.func) != "step":
            return False
        if id(call) not in self.stepping:
            self.stepping[id(call)] = self.steps_optimizer(call)
        return self.stepping[id(call)]

    def steps_optimizer(self, call):
        return last(call.func) == "step" and not re.search(r"sched|lr", text(call.func), re.I) and bool(
            OPTIMIZER.search(text(call.func.value) if isinstance(call.func, ast.Attribute) else "") or any(OPTIMIZER.search(text(a)) for a in call.args))

    def all_steps(self):
        return [dict(self.located(c, s), id=place(c), text=text(c.func)) for c, s in self.calls.get("step", []) if self.is_step(c)]

    def rates(self):
        """The values from which learning rates are computed."""
        found = []
        named = re.compile(r"(^|_)(lr|learning_rate|base_lr|max_lr)(_|$)", re.I)
        for scope in self.live:
            for name, values in scope.assigned.items():
                if named.search(name):
                    found += [(what, scope) for how, what in values if how == "value"]
            for call in scope.calls:
                found += [(k.value, scope) for k in call.keywords if k.arg and named.search(k.arg)]
        for attr, stores in self.stores.items():
            if named.search(attr):
                found += [(value, scope) for value, scope, _ in stores]
        return [{"file": s.file.path, "line": node.lineno, "value": plain(self.value(node, s))} for node, s in found if any(isinstance(n, ast.BinOp) for n in walk(node)) or isinstance(node, ast.Name)]

    def bounds(self):
        """The settings with which a counter is compared, or up to which it counts."""
        found = []
        for scope in self.live:
            for node in scope.tests:
                compared = [c for c in walk(node.test) if isinstance(c, ast.Compare) and len(c.comparators) == 1]
                if not compared or not (isinstance(node, ast.While) or any(isinstance(n, (ast.Break, ast.Return)) or isinstance(n, ast.Call) and last(n.func) in ("exit", "_exit") for b in node.body for n in walk(b))):
                    continue
                for c in compared:
                    for a, b in ((c.left, c.comparators[0]), (c.comparators[0], c.left)):
                        if last(a):
                            found.append({"counter": last(a), "file": scope.file.path, "line": node.lineno, "value": plain(self.value(b, scope))})
            for node in scope.fors:
                if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name):
                    inner = node.iter
                    if last(inner.func) in ("tqdm", "trange") and inner.args and isinstance(inner.args[0], ast.Call):
                        inner = inner.args[0]
                    if last(inner.func) in ("range", "trange") and inner.args:
                        found.append({"counter": node.target.id, "file": scope.file.path, "line": node.lineno, "value": plain(self.value(inner.args[min(1, len(inner.args) - 1)], scope))})
        counted, trains = set(), set()
        for scope in self.live:
            for loop in self.trains_in(scope):
                trains.add((scope.file.path, loop.lineno))
                counted |= {last(n.target) for n in loop.body if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and constant(n.value) == (1, True)}
                for call in [n for n in walk(loop.iter) if isinstance(n, ast.Call)] if isinstance(loop, ast.For) else []:
                    if (last(call.func) == "range" and call is not loop.iter and call is not strided(loop) or last(call.func) == "islice") and call.args:
                        found.append({"counter": "", "kind": "batch", "file": scope.file.path, "line": loop.lineno, "value": plain(self.value(call.args[-1], scope))})
        for b in found:
            b["kind"] = "batch" if b["counter"] in counted or (b["file"], b["line"]) in trains else b.get("kind", "")
            b["value"] = shifted(b["value"])
        return [b for b in found if "set" in b["value"] or "any" in b["value"] or "file" in b["value"] or "hydra" in b["value"]]

    def trains_in(self, scope):
        """The loops with one backward pass per round."""
        body = scope.node.body if isinstance(scope.node.body, list) else []
        loops = [n for b in self.blocks(body) for n in b if isinstance(n, (ast.For, ast.AsyncFor, ast.While))]
        return [l for l in loops if self.course(l.body)[0]]

    def asserts(self):
        return [{"file": s.file.path, "line": n.lineno, "value": plain(self.value(n.test, s))} for s in self.live for n in s.asserts if any(isinstance(m, ast.Mod) for m in walk(n.test))]

    def blocks(self, body):
        """A list of statements, and all lists of statements inside them except those of
        functions."""
        stack = [body]
        while stack:
            block = stack.pop()
            yield block
            inner = []
            for s in block:
                if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    continue
                for part in [s] + list(getattr(s, "handlers", [])):
                    for name in ("body", "orelse", "finalbody"):
                        if isinstance(getattr(part, name, None), list) and getattr(part, name):
                            inner.append(getattr(part, name))
            stack.extend(reversed(inner))

    def suffixes(self, block):
        """The results of statements together with all that follow them in a block."""
        steps, rates, found = NOTHING, NOTHING, [(NOTHING, NOTHING)]
        for node in reversed(block):
            steps, rates = joined(steps, self.under(node)[0]), joined(rates, self.rates_under([node]))
            found.append((steps, rates))
        found.reverse()
        return found

    def gates(self):
        """What decides when an optimizer makes its step."""
        found, self.conditions = [], []
        for scope in self.live:
            body = scope.node.body if isinstance(scope.node.body, list) else []
            for block in self.blocks(body):
                behind = None
                for n, s in enumerate(block):
                    if isinstance(s, (ast.If, ast.For)) and behind is None:
                        behind = self.suffixes(block)
                    if isinstance(s, ast.If) and not is_main(s):
                        self.gate(s, scope, behind[n + 1], found)
                    elif isinstance(s, ast.For) and isinstance(s.iter, ast.Call) and last(s.iter.func) in ("range", "trange", "tqdm"):
                        counted = s.iter.args[0] if s.iter.args else None
                        if isinstance(counted, ast.Call) and last(counted.func) == "range":
                            counted = counted.args[0] if counted.args else None
                        if counted is None or len(s.iter.args) > 1 and last(s.iter.func) == "range" and len(s.iter.args) > 1:
                            continue
                        steps, backward = self.under_all(s.body)
                        if backward and not steps and behind[n + 1][0]:
                            found.append({"file": scope.file.path, "line": s.lineno, "text": text(s.iter), "kind": "range", "value": plain(self.value(counted, scope)), "covers": sorted(behind[n + 1][0])})
        for name in ("Accelerator", "Trainer", "LightningTrainer", "TrainingArguments", "Seq2SeqTrainingArguments", "GradientAccumulationPlugin", "SFTConfig", "DPOConfig", "GRPOConfig"):
            for call, scope in self.calls.get(name, []):
                for k in call.keywords:
                    if k.arg in ("gradient_accumulation_steps", "accumulate_grad_batches", "num_steps"):
                        found.append({"kind": "framework", "file": scope.file.path, "line": call.lineno, "text": name + "(" + k.arg + "=…)", "call": name, "local": name in self.classes,
                                      "value": plain(self.value(k.value, scope)), "accumulates": bool(self.calls.get("accumulate"))})
        if any("deepspeed" in text(c.func) for c, _ in self.calls.get("initialize", [])):
            key = "gradient_accumulation_steps"
            values = [(v, s) for v, s, owner in self.stores.get(key, []) if owner != "self" and "args" not in owner]
            for scope in self.live:
                for node in walk(scope.node):
                    if isinstance(node, ast.Dict):
                        values += [(v, scope) for k, v in zip(node.keys, node.values) if k is not None and constant(k)[0] == key]
            for value, scope in values:
                found.append({"kind": "framework", "file": scope.file.path, "line": value.lineno, "text": "deepspeed", "call": "deepspeed.initialize", "local": False,
                              "value": plain(self.value(value, scope)), "accumulates": True})
        return found

    def gate(self, s, scope, behind, found):
        """What an if decides about the optimizer's steps and the learning rate."""
        ends = isinstance(s.body[-1], (ast.Continue, ast.Return))
        body, otherwise = self.under_all(s.body)[0], self.under_all(s.orelse)[0]
        under = body | otherwise | self.rates_under(s.body + s.orelse)
        if ends:
            under |= behind[0] | behind[1]
        if under:
            said = text(s.test)
            said = said if len(said) <= 80 else said[:79] + "…"
            self.conditions.append({"value": plain(self.value(s.test, scope)), "covers": sorted(under), "file": scope.file.path, "line": s.lineno, "text": said if body or otherwise else "not (%s)" % said})
        if self.interesting(s.test) and (body and not otherwise or ends and behind[0]):
            found.append({"file": scope.file.path, "line": s.lineno, "text": text(s.test), "kind": "if", "value": plain(self.value(s.test, scope)), "counters": counters(s.test, scope)})

    def once(self, nodes):
        """The marked nodes that run once whenever some statements, or functions that they call,
        do: not those in a training loop inside them. Calls with a fraction of the samples are
        omitted."""
        return list(self.course(nodes)[1].values())

    def course(self, nodes, depth=0):
        """Whether there is a backward pass in code that runs once, and the result of once, by
        id."""
        backward, marked = False, {}
        for node in nodes:
            back, more = self.course_of(node, depth)
            backward = backward or back
            marked.update(more)
        return backward, few(marked)

    def course_of(self, node, depth):
        key = ("course", id(node), depth)
        if key not in self.courses:
            backward, marked, calls, inner = self.events(node)
            found = [self.course_of(part, depth) for part in inner]
            if depth < 3:
                found += [self.course_within(f, depth + 1) for call in calls for f in self.callees(call)]
            marked = dict(marked)
            for back, more in found:
                backward = backward or back
                marked.update(more)
            self.courses[key] = backward, few(marked)
        return self.courses[key]

    def course_within(self, f, depth):
        key = ("course", id(f), depth)
        if key not in self.courses:
            self.courses[key] = self.course(f.node.body, depth)
        return self.courses[key]

    def marked(self, node):
        """Whether a node that runs once is of interest."""
        return self.is_rate(node)

    def each_step(self, node):
        """Whether a node runs for each step, rather than for each micro batch."""
        return self.is_rate(node)

    def events(self, node):
        """The events of a node without the statements in it: whether it has a backward pass, its
        marked nodes, its calls; and these statements."""
        key = ("events", id(node))
        if key in self.courses:
            return self.courses[key]
        backward, marked, calls, inner, stack = False, {}, [], [], [node]
        while stack:
            part = stack.pop()
            if part is not node and isinstance(part, ast.stmt):
                inner.append(part)
                continue
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(part, (ast.For, ast.AsyncFor, ast.While)) and self.backward_in(part.body):
                continue
            if self.marked(part):
                marked[id(part)] = part
            if isinstance(part, ast.Call) and last(part.func) != "backward":
                if any(isinstance(n, ast.Div) or isinstance(n, ast.Call) and last(n.func) == "len" for a in part.args for n in walk(a)):
                    stack.extend(a for a in part.args if self.backward_in([a]))
                    continue
                calls.append(part)
            backward = backward or is_backward(part)
            stack.extend(p for p in children(part) if type(p) not in LEAVES)
        self.courses[key] = backward, marked, calls, inner
        return self.courses[key]

    def rates_under(self, nodes):
        found = [n for n in self.once(nodes) if id(n) not in self.stepped]
        self.stepped.update((id(n), place(n) if self.each_step(n) else None) for n in found)
        return frozenset(self.stepped[id(n)] for n in self.once(nodes)) - {None}

    def is_rate(self, node):
        """Whether a statement or a call sets the learning rate of a step."""
        if isinstance(node, ast.Call):
            return last(node.func) in ("step", "step_update") and isinstance(node.func, ast.Attribute) and bool(re.search(r"sched|(^|_|\.)lr", text(node.func.value), re.I))
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        return any(isinstance(t, ast.Subscript) and constant(index(t))[0] == "lr" for t in targets) and not any(
            isinstance(n, ast.Call) and last(n.func) == "len" for n in walk(node.value))

    def schedules(self):
        """The places where each batch sets the learning rate, and the length of a schedule."""
        found, loaders = {}, {l["target"] for l in self.loaders()} - {""}
        for scope in self.live:
            for loop in self.trains_in(scope):
                for n in self.once(loop.body):
                    if not self.is_rate(n):
                        continue
                    key = place(n)
                    found[key] = {"id": key, "kind": "batch", "file": scope.file.path, "line": n.lineno, "text": text(n.func) + "()" if isinstance(n, ast.Call) else text(n)}
        lengths = []
        for scope in self.live:
            for call in scope.calls:
                name = last(call.func)
                if SCHEDULE.search(name) and name not in self.classes:
                    for given in call.args[1:] + [k.value for k in call.keywords if k.arg]:
                        for node, at in self.numbers(given, scope, loaders):
                            value = plain(self.value(node, at))
                            lengths.append({"id": 0, "kind": "batches" if self.counts_batches(node, at, loaders) else "length", "file": scope.file.path, "line": call.lineno, "text": name, "value": value})
        return list(found.values()) + lengths

    def numbers(self, node, scope, loaders):
        """The expressions, with their scopes, from which an argument of a schedule is computed:
        itself, or those in a function that returns the rate."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return [n for e in node.elts for n in self.numbers(e, scope, loaders)]
        bodies, made = [], [w for how, w in scope.assigned.get(last(node), []) if how == "value"]
        if any(isinstance(n, ast.Call) and SCHEDULE.search(last(n.func)) for n in [node] + made):
            return []  # a schedule in a schedule, which is listed by itself
        if isinstance(node, ast.Lambda):
            bodies = [(e, scope) for e in [node.body] + node.args.defaults + [d for d in node.args.kw_defaults if d is not None]]
        elif isinstance(node, ast.Name):
            bodies = [(e, f) for f in self.functions.get(node.id, [])[:1] if f.cls is None for e in children(f.node)]
        found = []
        for body, at in bodies:
            for n in ast.walk(body):
                if isinstance(n, (ast.Name, ast.Attribute, ast.Call)) and not isinstance(getattr(n, "ctx", None), ast.Store) and self.counts_batches(n, at, loaders):
                    found.append((factors(n), at))
        return found if bodies else [(node, scope)]

    def counts_batches(self, node, scope, loaders, depth=0):
        """Whether a number is computed from a loader's number of batches."""
        key = ("batches", id(node), id(scope), depth)
        if key not in self.courses:
            self.courses[key] = self.computes_batches(node, scope, loaders, depth)
        return self.courses[key]

    def computes_batches(self, node, scope, loaders, depth):
        for n in walk(node):
            if isinstance(n, ast.Call) and last(n.func) == "len" and n.args and (last(n.args[0]) in loaders or re.search(r"load|(^|_)(iter|dl)$", text(n.args[0]), re.I)):
                return True
            if isinstance(n, (ast.Name, ast.Attribute)) and depth < 4 and isinstance(n.ctx, ast.Load):
                at, values = scope, []
                while isinstance(n, ast.Name) and at is not None and not values:
                    values = [(what, at) for how, what in at.assigned.get(n.id, []) if how == "value"]
                    at = at.parent
                if isinstance(n, ast.Attribute):
                    values = [(v, s) for v, s, _ in self.stores.get(n.attr, [])]
                if any(self.counts_batches(v, s, loaders, depth + 1) for v, s in values[:4] if isinstance(v, ast.AST)):
                    return True
        return False

    def interesting(self, test):
        return any(isinstance(n, (ast.Name, ast.Attribute, ast.Mod, ast.Compare)) for n in walk(test))

    def losses(self):
        """The divisors and factors of losses."""
        found = []
        for scope in self.live:
            for left, right, node in scope.divisions:
                if re.search(r"loss|criterion|cost|nll|elbo|objective|energy", text(left) + " " + self.target(node), re.I) and not re.search(r"\blen\(|steps|total", text(left)):
                    value = plain(self.value(right, scope))
                    op = OPERATORS.get(type(node.op), "?")
                    if "const" not in value:
                        found.append({"file": scope.file.path, "line": node.lineno, "op": op, "value": value})
        return found

    def loaders(self):
        if self.made is None:
            self.made = self.find_loaders()
        return self.made

    def find_loaders(self):
        """The places where batches are made."""
        found, makes = [], re.compile(r"loader|iterator|^splits$|^randint$|^(Seq2Seq)?TrainingArguments$|^(SFT|DPO|GRPO)Config$", re.I)
        for scope in self.live:
            for call in scope.calls:
                name, words = last(call.func), {k.arg: k.value for k in call.keywords}
                for f in self.functions.get(name, [])[:1]:
                    size = self.once_known(("yields", id(f)), lambda: self.yields(f)) if self.may_call(call, scope, f) else ""
                    given = self.bound(call, scope, f, size, 1 if f.cls else 0) if size else None
                    if given and given[0] == "value":
                        found.append(self.loader(call, scope, kind=name, batch=plain(self.value(given[1], given[2]))))
                made = self.subclass(name, call, scope)
                if made is not None:
                    workers = self.subclass(name, call, scope, "num_workers", 5)
                    found.append(self.loader(call, scope, kind=name, local=True, data=" ".join(text(a) for a in call.args[:1]), batch=plain(made),
                                             shuffle=switch(words.get("shuffle")),
                                             workers=plain(workers) if workers is not None else {"name": "absent"}))
                    continue
                if not makes.search(name):
                    continue
                stars = [k.value for k in call.keywords if k.arg is None]
                item = self.loader(call, scope, kind=name, local=name in self.classes or name in self.functions,
                                   data=" ".join(text(a) for a in call.args[:1]) or text(words["dataset"]) if call.args or "dataset" in words else "",
                                   sampler=text(words["sampler"]) if "sampler" in words else "", shuffle=switch(words.get("shuffle")))
                local = name in self.classes
                if name.endswith("DataLoader") and not local or name in ("BucketIterator", "MultiEpochsDataLoader") or name == "splits" and "Iterator" in text(call.func):
                    batch = words.get("batch_size", call.args[1] if len(call.args) > 1 and not isinstance(call.args[1], ast.Starred) else None)
                    item["workers"] = plain(self.given(words.get("num_workers"), stars, "num_workers", scope))
                    if "batch_sampler" in words and constant(words["batch_sampler"]) != (None, True):
                        item["batch"] = plain(self.sampled(words["batch_sampler"], scope))
                    elif "batch_size_fn" in words:  # the batch size is a number of tokens, or what else the function counts
                        item["batch"] = {"name": text(words["batch_size_fn"])}
                    else:
                        item["batch"] = plain(self.given(batch, stars, "batch_size", scope))
                        if batch is None and item["batch"].get("name") == "absent":
                            if not self.default_is_one(name, call, scope):
                                continue
                            item["batch"] = {"name": "**" + text(stars[0])} if stars and "batch_size" in self.stores else {"const": 1}
                    if item["shuffle"] is None and stars:
                        shuffled = self.given(None, stars, "shuffle", scope)
                        item["shuffle"] = bool(shuffled["const"]) if shuffled and "const" in shuffled else None
                    found.append(item)
                elif name in ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig") and not local:
                    for word, role in (("per_device_train_batch_size", "train"), ("per_device_eval_batch_size", "eval")):
                        if word in words:
                            found.append(dict(item, role=role, batch=plain(self.value(words[word], scope)), workers=plain(self.given(words.get("dataloader_num_workers"), stars, "dataloader_num_workers", scope))))
                elif local and re.search(r"loader|iterator", name, re.I) and "__init__" in self.classes[name][0]["methods"]:
                    init = self.classes[name][0]["methods"]["__init__"]
                    for p in init.params():
                        if BATCH.match(p) or p in ("B", "batch"):
                            given = self.bound(call, scope, init, p, 1)
                            if given and given[0] == "value" and self.makes(name, p):
                                found.append(dict(item, batch=plain(self.value(given[1], given[2])), workers={"name": "absent"}))
                elif name == "randint" and OF_SAMPLES.search(" ".join(text(a) for a in call.args if not isinstance(a, ast.Tuple))):
                    for a in call.args + list(words.values()):
                        if isinstance(a, ast.Tuple) and len(a.elts) == 1 and re.search(r"batch|^B$|bs", text(a.elts[0]), re.I):
                            found.append(dict(item, batch=plain(self.value(a.elts[0], scope)), workers={"name": "absent"}))
                elif "batch_size" in words and not item["local"] and re.search(r"loader|iterator", name, re.I):
                    found.append(dict(item, batch=plain(self.value(words["batch_size"], scope)), workers={"name": "absent"}))
            for node in scope.slices:
                piece = index(node)
                for bound in (piece.lower, piece.upper):
                    if isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Mult):
                        for side in (bound.left, bound.right):
                            if BATCH.match(last(side)) and isinstance(node.ctx, ast.Load):
                                found.append(self.loader(node, scope, kind="slice", function=scope.name, data=text(node.value), batch=plain(self.value(side, scope))))
            for loop in scope.fors:
                made = strided(loop)
                sizes = widths(loop) if made is None else made.args[2:]
                if sizes and self.backward_in(loop.body):
                    found.append(self.loader(loop, scope, kind="range", target="train", function=scope.name, role="train", batch=plain(self.value(sizes[0], scope)),
                                             sliced=text(sizes[0]) in [text(w) for w in widths(loop)]))
        for one in found:
            one["loop"] = self.read_by(one)
        return found or self.drawn_samples()

    def loader(self, node, scope, **more):
        """A place where batches are made, with what is known of it."""
        known = {"target": self.target(node), "function": scope.name + " " + (scope.cls or ""), "data": "", "sampler": "", "shuffle": None,
                 "role": "", "local": False, "workers": {"name": "absent"}}
        return {**self.located(node, scope), **known, **more}

    def read_by(self, loader):
        """What reads the batches of a loader, by a loop over its name in the same file: "train" for one with a backward
        pass, "other" for one without; empty if it is not known."""
        name, found = loader["target"], set()
        loops = self.once_known("loops", lambda: [(s.file.path, loop) for s in self.live for loop in s.fors])
        for path, loop in loops if name.isidentifier() else []:
            over = loop.iter.args[0] if isinstance(loop.iter, ast.Call) and last(loop.iter.func) in ("enumerate", "tqdm") and loop.iter.args else loop.iter
            if path == loader["file"] and isinstance(over, ast.Name) and over.id == name:
                found.add("train" if self.backward_in(loop.body) else "other")
        return found.pop() if len(found) == 1 else ""

    def default_is_one(self, name, call, scope):
        """Whether a call is of PyTorch's DataLoader, or of one that is made from it: not a function of that name, and
        no class of a module of the job's that was not read."""
        module = scope.file.imports.get(name, ("", name))[0] if isinstance(call.func, ast.Name) else ""
        return name not in self.functions and (not module or module.split(".")[0] in ("torch", "torch_geometric", "torchdata", "dgl", "monai", "accelerate", "lightning"))

    def drawn_samples(self):
        """The random samples that training loops draw, where nothing else makes batches."""
        return [{"kind": "draw", "file": scope.file.path, "line": size.lineno, "target": "train", "function": scope.name, "data": "", "sampler": "", "shuffle": None, "role": "train",
                 "local": False, "batch": plain(self.value(size, scope)), "workers": {"name": "absent"}, "sliced": True}
                for scope in self.live for loop in self.trains_in(scope) for b in loop.body for size in map(draws, walk(b)) if isinstance(size, (ast.Name, ast.Attribute))]

    def is_batch(self, name):
        """Whether a name is a batch size by its form, or as the width of the slices of a training
        loop."""
        return bool(BATCH.match(name)) or name in self.once_known("widths", lambda: {
            last(w) for scope in self.live for loop in scope.fors if self.backward_in(loop.body) for w in widths(loop)} - {""})

    def subclass(self, name, call, scope, key="batch_size", place=1):
        """The value of an argument of the DataLoader, by its name and place, in a call of a subclass; None for another
        call, or if the class does not pass it on."""
        for c in self.classes.get(name, [])[:1]:
            if not any(b.endswith("DataLoader") for b in c["bases"]):
                break
            init = c["methods"].get("__init__")
            given = handed(call, key, place)
            if init is None:
                return self.value(given, scope) if given is not None else None
            for inner in init.calls:
                if last(inner.func) != "__init__":
                    continue
                first = 0 if isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Call) else 1  # self
                passed = handed(inner, key, place + first)
                if isinstance(passed, ast.Name) and init.has(passed.id):
                    found = self.bound(call, scope, init, passed.id, 1)
                    default = init.default(passed.id)
                    return self.value(found[1], found[2]) if found and found[0] == "value" else self.value(default, init) if found is None and default is not None else None
                if passed is not None:
                    return self.value(passed, init)
                if any(k.arg is None for k in inner.keywords) and not init.has(key) and given is not None:
                    return self.value(given, scope)
        return None

    def may_call(self, call, scope, f):
        """Whether a call is one of a function, or of a method of an object that is certainly of its class."""
        if not f.cls or not isinstance(call.func, ast.Attribute):
            return not f.cls
        of, family, todo = self.value(call.func.value, scope), set(), [f.cls]
        while todo:
            cls = todo.pop()
            if cls not in family:
                family.add(cls)
                todo += [name for name, _ in self.subclasses.get(cls, [])] + [b for c in self.classes.get(cls, []) for b in c["bases"]]
        return any(v and v.get("instance", v.get("class")) in family for v in (of.get("any", [of]) if of else []))

    def yields(self, f):
        """The parameter of a generator of batches that is their size; empty if there is none."""
        if any(isinstance(n, ast.Yield) for n in walk(f.node)):
            for node in f.slices:
                upper = index(node).upper
                if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
                    return next((last(side) for side in (upper.left, upper.right) if isinstance(side, ast.Name) and f.has(side.id)), "")
        return ""

    def makes(self, cls, param):
        """Whether a class makes batches of as many samples as a parameter's value."""
        mine = {param} | {attr for attr, stores in self.stores.items() for value, scope, owner in stores if owner == "self" and scope.cls == cls and last(value) == param}
        for c in self.classes[cls]:
            for node in walk(c["node"]):
                if isinstance(node, ast.Call) and last(node.func) in ("view", "reshape", "randint", "randperm") and any(last(a) in mine for a in node.args[:1]):
                    return True
                if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and last(node.left.func) == "len" and any(last(b) in mine for b in node.comparators):
                    return True
                if isinstance(node, ast.Subscript) and isinstance(index(node), ast.Slice) and any(
                        isinstance(n, ast.BinOp) and (last(n.left) in mine or last(n.right) in mine) for b in (index(node).lower, index(node).upper) if b is not None for n in walk(b)) and BATCH.match(param):
                    return True
        return False

    def given(self, node, stars, key, scope):
        if node is not None:
            return self.value(node, scope)
        for s in stars:
            mark = (("kw", id(s)),)
            found = self.project(self.value(s, scope), key, mark, 0, text(s))
            if found is None or found.get("name") != "absent":
                return found
        return {"name": "absent"}

    def sampled(self, node, scope):
        """The batch of a batch sampler."""
        calls = [(node, scope)] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Name):
            at = scope
            while at is not None and not calls:
                calls = [(what, at) for how, what in at.assigned.get(node.id, []) if how == "value" and isinstance(what, ast.Call)]
                at = at.parent
        found = []
        for call, at in calls:
            words, name = {k.arg: k.value for k in call.keywords}, last(call.func)
            given = words.get("batch_size", call.args[1] if name.endswith("Sampler") and len(call.args) > 1 else None)
            if name in self.classes and "__init__" in self.classes[name][0]["methods"]:
                init, given = self.classes[name][0]["methods"]["__init__"], None
                for p in init.params():
                    if BATCH.match(p):
                        bound = self.bound(call, at, init, p, 1)
                        given = bound[1] if bound and bound[0] == "value" else None
            found.append(self.value(given, at) if given is not None else {"name": text(call)})
        return alternatives(found, text(node))

    def checkpoints(self):
        """What decides whether activations are recomputed."""
        found, switch = [], re.compile(r"^(use_|with_|enable_)?(gradient_checkpoint(ing)?|grad_checkpoint(ing)?|activation_checkpoint(ing)?|checkpoint_activations|checkpointing|checkpoint_gradients|grad_ckpt|use_checkpoint|with_cp|use_gradient_checkpointing|use_grad_checkpointing|act_checkpoint|use_ckpt|use_checkpointing)$")
        for scope in self.live:
            for node in scope.ifs:
                body = node.body if isinstance(node.body, list) else [node.body]
                if any(isinstance(n, ast.Call) and last(n.func) in CHECKPOINTS for b in body for n in walk(b)):
                    found.append({"file": scope.file.path, "line": node.lineno, "text": text(node.test), "value": plain(self.value(node.test, scope))})
            for call in scope.calls:
                name = last(call.func)
                for k in call.keywords:
                    if k.arg and switch.match(k.arg) and name != "add_argument" and name not in self.classes and name not in self.functions:
                        found.append({"file": scope.file.path, "line": call.lineno, "text": (name or text(call.func)[:40]) + "(" + k.arg + "=…)", "value": plain(self.value(k.value, scope))})
                if re.match(r"(set|enable)_.*checkpoint", name) and len(call.args) == 1:
                    found.append({"file": scope.file.path, "line": call.lineno, "text": name, "value": plain(self.value(call.args[0], scope))})
        for attr, stores in self.stores.items():
            if switch.match(attr):
                for value, scope, owner in stores:
                    if owner != "self" and not any(s["dest"] == attr and CONFIG.search(owner) and owner in ("args", "opt", "opts") for s in self.settings):
                        found.append({"file": scope.file.path, "line": value.lineno, "text": owner + "." + attr, "value": plain(self.value(value, scope))})
        return found

    def saves(self):
        saved, loaded, made = [], [], []
        for scope in self.live:
            for call in scope.calls:
                name, full, words = last(call.func), dotted(call.func), {k.arg: k.value for k in call.keywords}
                if full.endswith("torch.save") and len(call.args) + ("f" in words) >= 2 or name == "save_on_master" and len(call.args) >= 2:
                    path = call.args[1] if len(call.args) > 1 else words["f"]
                    saved.append(dict(self.located(call, scope), path=plain(self.value(path, scope)), keys=self.keys(call.args[0], scope)))
                elif full in ("torch.load",) and call.args:
                    loaded.append(dict(self.located(call, scope), call=full, value=plain(self.value(call.args[0], scope))))
                elif name == "load_state" and call.args and name not in self.functions:
                    loaded.append(dict(self.located(call, scope), call=name, value=plain(self.value(call.args[0], scope))))
                elif name == "save_state" and call.args and name not in self.functions:
                    saved.append(dict(self.located(call, scope), path=plain(self.value(call.args[0], scope)), keys=["optimizer", "state"]))
                elif name in ("train", "fit"):
                    for k in ("resume_from_checkpoint", "ckpt_path"):
                        if k in words:
                            loaded.append(dict(self.located(call, scope), call=name + "(" + k + ")", value=plain(self.value(words[k], scope))))
                elif name in ("makedirs", "mkdir") and (call.args or isinstance(call.func, ast.Attribute)):
                    if constant(words.get("exist_ok", ast.Constant(value=False)))[0] is not True and not self.guarded(call):
                        path = call.args[0] if call.args and full.startswith("os.") else call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
                        if not any(last(c.func) == "rmtree" and c.args and text(c.args[0]) == text(path) for c in scope.calls):
                            made.append(dict(self.located(call, scope), value=plain(self.value(path, scope))))
        restored = any(last(c.func) == "load_state_dict" and re.search(r"opt", text(c.func), re.I) for calls in self.calls.values() for c, _ in calls)
        return saved, loaded, made, restored

    def guarded(self, call):
        for _, above in ancestors(call):
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
                break
            if isinstance(above, ast.Try) or isinstance(above, ast.If) and re.search(r"exists|isdir", text(above.test)):
                return True
        return False

    def keys(self, node, scope):
        value = self.value(node, scope)
        found = []
        for v in (value.get("any", [value]) if value else []):
            if "literal" in v and isinstance(v["literal"][0], ast.Dict):
                found += [str(constant(k)[0]) for k in v["literal"][0].keys if k is not None]
            elif "literal" in v and isinstance(v["literal"][0], ast.Call):
                found += [k.arg for k in v["literal"][0].keywords if k.arg]
        if isinstance(node, ast.Name):  # state["epoch"] = epoch
            found += [key for key, stores in self.stores.items() if any(owner == node.id and s is scope for _, s, owner in stores)]
        return found

    def unlike(self):
        """Code that makes a batch more than the sum of its samples: statistics over it, or a loss
        over its pairs."""
        found = []
        norm = re.compile(r"^(Sync)?BatchNorm(\d[dD])?$|^batch_norm$|^convert_sync_batchnorm$")  # the last one makes none by itself
        pairs = re.compile(r"InfoNCE|NTXent|NT_Xent|SupCon|contrastive_?loss|ContrastiveLoss|ClipLoss|clip_loss|TripletLoss|triplet_loss|MultipleNegatives|BiEncoderNllLoss|in_batch_neg|inbatch", re.I)
        for scope in self.live:
            for call in scope.calls:
                name, full = last(call.func), dotted(call.func)
                root = scope.file.imports.get(full.split(".")[0], ("", ""))
                torchvision = "torchvision.models" in full or root[0].startswith("torchvision.models") or root[0] == "torchvision" and root[1] == "models"
                kind = ""
                if SCORES.search(scope.file.path + " " + scope.name + " " + name):
                    torchvision = False
                if norm.match(name):
                    kind = "norm"
                elif torchvision and "FrozenBatchNorm2d" not in self.classes and not re.match(r"vit_|swin|convnext|alexnet|vgg\d+$", name) or name == "create_model" and root[0].startswith("timm"):
                    kind = "models"
                elif pairs.search(name) and not re.search(r"(Net|Model|Encoder|Dataset|Sampler|Collator)$", name):
                    kind = "pairs"
                elif name in ("cross_entropy", "CrossEntropyLoss", "criterion", "nll_loss", "loss_fct") and len(call.args) > 1:
                    target = self.value(call.args[1], scope)
                    if any("arange" in str(v.get("name", "")) for v in (target.get("any", [target]) if target else [])):
                        kind = "pairs"
                if kind and len(found) < 20:
                    found.append(dict(self.located(call, scope), text=text(call.func)[:60], kind=kind))
        return sorted(found, key=lambda one: "convert_sync" in one["text"])

    def facts(self):
        self.mark_read()
        self.mark_idle()
        self.first = {"settings": self.settings, "loaders": self.loaders(), "files": self.loaded(), "hydra": self.hydra, "overlays": self.overlays, "dotted": any(n in self.calls for n in ("from_cli", "from_dotlist", "merge_with_dotlist", "merge_with_cli")), "modules": len(self.files)}
        saved, loaded, made, restored = self.saves()
        split = [{"file": s.file.path, "line": c.lineno} for c, s in self.calls.get("Accelerator", []) + self.calls.get("DataLoaderConfiguration", [])
                 for k in c.keywords if k.arg == "split_batches" and constant(k.value)[0] is not False]
        gates = self.gates()
        return {**self.first, "gates": gates, "conditions": self.conditions, "steps": self.all_steps(), "rates": self.rates(), "schedules": self.schedules(), "bounds": self.bounds(), "asserts": self.asserts(), "losses": self.losses(), "checkpoints": self.checkpoints(), "unlike": self.unlike(),
                "saves": saved, "loads": loaded, "made": made, "restores": restored, "split": split,
                "counted": [constant(t.comparators[0])[0] for s in self.live for n in s.ifs for t in walk(n.test)
                            if isinstance(t, ast.Compare) and text(t.left) in ("len(sys.argv)", "sys.argv.__len__()") and isinstance(constant(t.comparators[0])[0], int)],
                "backwards": [{"file": s.file.path, "line": c.lineno, "text": text(c.func.value)} for c, s in self.calls.get("backward", []) if isinstance(c.func, ast.Attribute)]}


# Where a known model only compares images, as for the FID or a perceptual loss: it is not trained.
SCORES = re.compile(r"(^|[/_. ])(fid|scores?|metrics?|lpips|perceptual\w*|evaluat\w*|inception\w*)([/_. ]|$)", re.I)


def shifted(value):
    """A value without a constant that is added to it, as in range(1, args.steps + 1)."""
    while value.get("op") in ("+", "-") and len(value["of"]) == 2 and any("const" in part for part in value["of"]):
        value = next((part for part in value["of"] if "const" not in part), {"name": "?"})
    return value


def described(node):
    value = constant(node)[0] if node is not None else None
    if value is None and node is not None:
        value = " ".join(str(n.value) for n in walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return str(value)[:300] if value else ""


def literal(node):
    if node is None:
        return {"default": None, "known": True}
    value, known = constant(node)
    return {"default": value if known else None, "known": known}
