# The parts of a patch: the batch size, the accumulation of gradients, the continuation; and the
# answer to a request for one.

# Functions that make data of a size, and names of numbers of samples.
MAKES = {"range", "arange", "linspace", "randn", "rand", "randint", "zeros", "ones", "empty", "full", "normal", "standard_normal", "random", "uniform", "randperm", "permutation"}
AMOUNTS = re.compile(r"^(self\.)?(n|m|num|size|len|length|total|samples?|n_\w+|num_\w+|total_\w+|\w*_(size|len|length|samples|examples|images))$")


class Batch:
    """Makes the constant batch size of a loop's loader an argument."""

    def __init__(self, script, loop):
        self.s, self.loop = script, loop

    def change(self):
        s = self.s
        found = []
        step, counted = self.loop.step, self.loop.step is None and not self.loop.made
        if step is not None and constant(step)[1]:
            raise Unclear("the batch size is the number %s in the loop and in its slices: give it a name there, such as BATCH_SIZE = %s" % (text(step), text(step)), step)
        if counted and widths(self.loop.loop):
            raise Unclear("the number of steps does not follow from the batch size: %s" % text(self.loop.loop.iter)[:50], self.loop.loop)
        if step is not None:  # a loop over slices
            found = [m for m, _ in s.origins(self.loop.step, s.scope(self.loop.step))]
        elif counted:  # a loop over steps
            drawn = [d for d in [draws(n) for b in self.loop.loop.body for n in inside(b)] if isinstance(d, (ast.Name, ast.Attribute))]
            found = [m for d in drawn for m, _ in s.origins(d, s.scope(d))] or [
                n.value for n in s.tree.body if isinstance(n, ast.Assign) and len(n.targets) == 1 and BATCH.match(text(n.targets[0]).lower()) and constant(n.value)[1]]
            if not found:
                raise Unclear("the loop counts steps, and no constant of the script is the size of its batches", self.loop.loop)
        for call, scope in self.loop.made:
            given = self.loop.words(call, scope).get("batch_size")
            if given is None:
                raise Unclear("%s has no batch size" % text(call.func), call)
            more = s.origins(given, s.scope(given))
            if not more:
                raise Unclear("where the batch size comes from is not known: %s" % text(given), given)
            found += [m for m, _ in more if m not in found]
        numbers = []
        for node in found:
            numbers += [m for m in self.literals(node) if m not in numbers]
        if len(numbers) != 1 or type(constant(numbers[0])[0]) is not int or constant(numbers[0])[0] < 1:
            raise Unclear("the batch size is not one number: %s" % ", ".join(text(n) for n in numbers or found), (numbers or found or [self.loop.loop])[0])
        number = numbers[0]
        if constant(number)[0] == 1:
            raise Unclear("the batch size is 1", number)
        if number not in s.nodes:
            raise Unclear("the batch size is %s in a module" % text(number))
        self.shapes(number)
        self.amounts(number)
        words = 'type=int, default=%s, help="samples of a batch"' % s.code(number)
        name = "batch_size"
        at = s.statement(number)
        scope = s.scope(number)
        if isinstance(at, (ast.FunctionDef, ast.ClassDef)):
            scope = s.scope(at)
        s.option(name, words)
        space = s.own(scope) if s.made else s.space(scope, at.lineno)
        if not space:
            return self.used(number, name)
        s.edit(s.start(number), s.end(number), space + "." + name)

    def used(self, number, name):
        """Puts the argument where a constant is used, if it is not parsed where the constant is
        made."""
        s, at = self.s, self.s.statement(number)
        target = at.targets[0] if isinstance(at, ast.Assign) and len(at.targets) == 1 and at.value is number else None
        if not isinstance(target, ast.Name) or s.scope(at) is not s.tree or s.bound[id(s.tree)][target.id] != [("value", number)]:
            raise Unclear("the batch size is set before the arguments are parsed", number)
        for n in s.nodes:
            if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load) and s.owner(n.id, s.scope(n)) is s.tree:
                space = s.space(s.scope(n), n.lineno)
                if not space:
                    raise Unclear("%s is used where the arguments are not known" % target.id, n)
                s.edit(s.start(n), s.end(n), space + "." + name)

    def literals(self, node):
        """The literals of a configuration in the script, such as cfg.batch_size."""
        s = self.s
        if constant(node)[1]:
            return [node]
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            key = node.attr if isinstance(node, ast.Attribute) else constant(index(node))[0]
            stores = [n for n in s.nodes if isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store) and (n.attr if isinstance(n, ast.Attribute) else constant(index(n))[0]) == key]
            for of, _ in s.origins(node.value, s.scope(node)) or [(node.value, None)]:
                name = last(of.func) if isinstance(of, ast.Call) else last(of)
                for c in [n for n in s.nodes if isinstance(n, ast.ClassDef) and n.name == name]:
                    fields = [f.value for f in c.body if isinstance(f, (ast.Assign, ast.AnnAssign)) and f.value is not None and last(f.targets[0] if isinstance(f, ast.Assign) else f.target) == key]
                    given = [k for n in s.nodes if isinstance(n, ast.Call) and last(n.func) == name for k in n.keywords + n.args]
                    if not stores and not given and fields and not c.bases:
                        return [f for f in fields if constant(f)[1]]
            if isinstance(node, ast.Attribute) and s.parsed and s.is_space(node.value, s.scope(node)):
                raise Unclear("", node)  # the reader knows why it is not certain
            raise Unclear("where the batch size comes from is not known: %s" % text(node), node)
        raise Unclear("the batch size is computed: %s" % text(node)[:50], node)

    def amounts(self, number):
        """Refuses a batch size from which the number of samples or steps follows: BATCH * STEPS samples
        are half as many with half the batch."""
        s, at = self.s, self.s.statement(number)
        name = last(at.targets[0]) if isinstance(at, ast.Assign) and len(at.targets) == 1 else ""
        sizes = [n for n in s.nodes if name and isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and last(n) == name]
        for n in sizes:
            above = s.above.get(id(n))
            if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult) and self.amount(above):
                raise Unclear("the number of samples may follow from the batch size: %s" % text(above)[:50], above)
        if self.loop.step is None and not self.loop.made:
            for bound in getattr(getattr(self.loop.loop, "iter", None), "args", []):
                for value in [bound] + [m for m, _ in s.origins(bound, s.scope(bound))]:
                    if any(n in sizes for n in ast.walk(value)):
                        raise Unclear("the number of steps follows from the batch size: %s" % text(value)[:50], value)

    def amount(self, node):
        """Whether a product is a number of samples: a length, a bound, or the size of new data."""
        s = self.s
        while True:
            of, node = node, s.above.get(id(node))
            if node is None or isinstance(node, (ast.Slice, ast.JoinedStr, ast.FunctionDef)):
                return False
            if isinstance(node, ast.Call) and node.func is not of:
                return last(node.func) in MAKES or last(node.func).endswith("Dataset")
            if isinstance(node, ast.Return):
                function = s.above.get(id(node))
                return isinstance(function, ast.FunctionDef) and function.name == "__len__"
            if isinstance(node, ast.Assign):
                return bool(AMOUNTS.match(text(node.targets[0]).lower()))

    def shapes(self, number):
        """Refuses a number that is also in the shape of a tensor."""
        value = constant(number)[0]
        for n in self.s.nodes:
            if isinstance(n, ast.Call) and last(n.func) in ("view", "reshape", "expand", "repeat", "zeros", "ones", "randn", "rand", "full", "tile", "unflatten") and n.args and value > 1:
                first = n.args[0].elts[0] if isinstance(n.args[0], (ast.Tuple, ast.List)) and n.args[0].elts else n.args[0]
                if constant(first) == (value, True) and first is not number:
                    raise Unclear("the number of samples is also in a shape: %s" % text(n)[:50], n)


class Continuation:
    """Lets a script continue from the checkpoint that it writes."""

    def __init__(self, script):
        self.s = script

    def change(self):
        s = self.s
        save, state = self.saved()
        scope = s.scope(save)
        loop = self.epochs(save)
        names, restored = self.state(state, scope, loop)
        epoch = loop.target.id
        first = loop.iter.args[0] if len(loop.iter.args) > 1 else None
        if len(loop.iter.args) > 2:
            raise Unclear("the epochs do not follow each other", loop)
        key, offset = self.key(state, epoch, save)
        path = s.argument("resume", 'default="", help="checkpoint to continue from"', loop, loop.lineno)
        start, loaded = s.fresh("start_epoch", "first_epoch", "resume_epoch"), s.fresh("checkpoint", "resumed", "resumed_state")
        lines = ["%s = %s" % (start, s.code(first) if first is not None else "0"), "if %s:" % path, '    %s = torch.load(%s, map_location="cpu", weights_only=False)' % (loaded, path)]
        lines += ["    %s.load_state_dict(%s[%s])" % (of, loaded, k) for k, of in names]
        lines += ["    %s = %s[%s]" % (of, loaded, k) for k, of in restored]
        lines += ["    %s = %s[%s]%s" % (start, loaded, key, offset)]
        s.before(loop, lines)
        if first is not None:
            s.edit(s.start(first), s.end(first), start)
        else:
            s.edit(s.start(loop.iter.args[0]), s.start(loop.iter.args[0]), start + ", ")

    def saved(self):
        """The call that saves the state of the training, and the dictionary of the state."""
        s, found, weights = self.s, [], None
        is_save = lambda n: isinstance(n, ast.Call) and dotted(n.func).endswith("torch.save") and len(n.args) > 1
        saves = list(filter(is_save, s.nodes))
        elsewhere = next(filter(is_save, s.elsewhere), None)
        if not saves and elsewhere is not None:
            raise Unclear("its checkpoint is written here, and a patch changes only the script", elsewhere)
        if not saves:
            raise Unclear("it writes no checkpoint (torch.save)")
        if any(isinstance(n, ast.Call) and dotted(n.func) == "torch.load" for n in s.nodes) and any(isinstance(n, ast.Call) and last(n.func) == "load_state_dict" and re.search("opt", text(n.func), re.I) for n in s.nodes):
            raise Unclear("it loads an optimizer's state already", next(n for n in s.nodes if isinstance(n, ast.Call) and dotted(n.func) == "torch.load"))
        for save in saves:
            for of, at in s.origins(save.args[0], s.scope(save)) or [(save.args[0], None)]:
                entries = self.entries(of)
                if any(re.search("opt", k[0], re.I) for k in entries):
                    site = of if isinstance(save.args[0], ast.Name) and s.scope(of) is not s.scope(save) else save
                    found.append((site, of))
                else:
                    weights = save
        if not found:
            raise Unclear("it saves the weights, and not the optimizer's state", weights)
        if len(found) > 1:
            raise Unclear("it saves its state in several places", found[1][0])
        return found[0]

    def entries(self, of):
        """The keys of a dictionary with their values."""
        if isinstance(of, ast.Dict) and all(k is not None for k in of.keys):
            return [(self.s.code(k), v) for k, v in zip(of.keys, of.values)]
        if isinstance(of, ast.Call) and last(of.func) == "dict" and not of.args:
            return [('"%s"' % k.arg, k.value) for k in of.keywords if k.arg]
        return []

    def epochs(self, save):
        """The loop over the epochs, which saves at the end of each."""
        s, node = self.s, save
        while node is not s.tree and not is_function(node):
            above = s.above[id(node)]
            if isinstance(above, (ast.For, ast.While)):
                break
            if isinstance(above, ast.If) and node in above.body and any(isinstance(n, ast.Compare) and isinstance(n.ops[0], (ast.Lt, ast.Gt, ast.LtE, ast.GtE)) for n in ast.walk(above.test)) and not any(isinstance(n, ast.Mod) for n in ast.walk(above.test)):
                raise Unclear("it saves only some states: if %s" % text(above.test)[:50], save)
            node = above
        loop = s.above.get(id(node))
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or not (isinstance(loop.iter, ast.Call) and last(loop.iter.func) in ("range", "trange")) or loop.iter.keywords:
            raise Unclear("it does not save in a loop over epochs", save)
        trains = self.trains(loop, 0)
        if not trains:
            raise Unclear("it does not save in the loop that trains", save)
        behind = loop.body[loop.body.index(node) + 1:]
        for n in [n for b in behind for n in inside(b)]:
            if is_backward(n) or isinstance(n, ast.Call) and last(n.func) == "step" or n in trains:
                raise Unclear("it saves before the end of an epoch", save)
        if any(isinstance(n, ast.AugAssign) and text(n.target) == loop.target.id for n in inside(loop)):
            raise Unclear("the number of the epoch changes in the loop", loop)
        return loop

    def trains(self, node, depth):
        """The backward passes in a node, and the calls that lead to one."""
        found = [n for n in inside(node) if is_backward(n)]
        for call in calls_in(node) if depth < 4 else []:
            if any(f.name == last(call.func) and f is not node and self.trains(f, depth + 1) for f in self.s.functions):
                found.append(call)
        return found

    def state(self, state, scope, loop):
        """The objects whose state is loaded, and the variables that are set."""
        s, names, restored = self.s, [], []
        for key, value in self.entries(state):
            if isinstance(value, ast.Call) and last(value.func) == "state_dict" and not value.args:
                if not whole(value.func.value):
                    raise Unclear("it is not known what %s is" % text(value)[:40], value)
                names.append((key, text(value.func.value)))
            elif isinstance(value, ast.Name) and value.id != loop.target.id and any(
                    how == "value" and id(what) in s.above and s.scope(what) is s.scope(loop) and what.end_lineno < loop.lineno for how, what in s.bound.get(id(s.scope(loop)), {}).get(value.id, [])):
                restored.append((key, value.id))
        loaded = {n for _, n in names}
        if not any(re.search("opt", n, re.I) for n in loaded) or len(loaded) < 2:
            raise Unclear("it does not save the state of the model and of the optimizer", state)
        for name in loaded:
            if "." not in name and "[" not in name and s.owner(name, s.scope(loop)) is not s.owner(name, s.scope(state)):
                raise Unclear("%s is not known before the loop" % name, state)
        for name, ways in s.bound.get(id(s.scope(loop)), {}).items():
            made = [last(what.func) for how, what in ways if how == "value" and isinstance(what, ast.Call)]
            if name not in loaded and any(SCHEDULE.search(m) or m == "GradScaler" for m in made) and any(
                    isinstance(n, ast.Call) and last(n.func) in ("step", "update") and text(n.func.value) == name for n in s.nodes if isinstance(getattr(n, "func", None), ast.Attribute)):
                self.add(state, '"%s"' % name, "%s.state_dict()" % name)
                names.append(('"%s"' % name, name))
        return names, restored

    def add(self, state, key, value):
        """Adds an entry to the state that is saved."""
        s = self.s
        if not isinstance(state, ast.Dict):
            raise Unclear("it does not save %s" % value, state)
        at = s.start(state.keys[0])
        s.edit(at, at, "%s: %s, " % (key, value))

    def key(self, state, epoch, save):
        """The key of the epoch in the state, and what is added to its value."""
        for key, value in self.entries(state):
            if text(value) == epoch:
                return key, " + 1"
            if text(value) == epoch + " + 1":
                return key, ""
        self.add(state, '"epoch"', epoch)
        return '"epoch"', " + 1"


def backward_loops(script):
    """The loops with a backward pass, and these."""
    found, alone = [], []
    for node in script.nodes:
        if not is_backward(node):
            continue
        if not isinstance(node.func, ast.Attribute) or last(node.func) != "backward" or node.args:
            of = text(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            library = "Accelerate" if "accel" in of.lower() else "Lightning" if "manual" in last(node.func) or "fabric" in of.lower() else "DeepSpeed" if re.search("engine|^model", of) else ""
            if not library:
                raise Unclear("the backward pass has arguments: %s" % text(node)[:50], node)
            raise Unclear("%s makes the backward pass, and accumulates gradients by a setting" % library, node)
        if node.keywords:
            raise Unclear("the backward pass keeps its graph: %s" % text(node)[:50], node)
        if not isinstance(script.above[id(node)], ast.Expr):
            raise Unclear("the backward pass is in an expression", node)
        above = script.above[id(node)]
        while isinstance(script.above[id(above)], (ast.With, ast.If)):
            above = script.above[id(above)]
        loop = script.above[id(above)]
        if isinstance(loop, ast.Try):
            raise Unclear("the backward pass is in a try", node)
        if not isinstance(loop, (ast.For, ast.While)):
            alone.append(node)
            continue
        known = [f for f in found if f[0] is loop]
        known[0][1].append(node) if known else found.append((loop, [node]))
    for node in alone:
        found.append(called_for_each(script, node))
    if not found:
        others = [path for path, module in sorted(script.modules.items()) if any(is_backward(n) for n in ast.walk(module))]
        raise Unclear("the loop with the backward pass is in %s, and a patch changes only the script" % others[0] if others else "it has no loop with a backward pass")
    return found


def called_for_each(script, node):
    """The loop that calls a function with a backward pass for each batch."""
    function = script.scope(node)
    sites = script.sites(function) if isinstance(function, ast.FunctionDef) else []
    if len(sites) != 1 or getattr(sites[0], "spawned", False):
        raise Unclear("the backward pass is not in a loop over batches", node)
    call = sites[0]
    above = script.statement(call)
    while isinstance(script.above[id(above)], (ast.With, ast.If)):
        above = script.above[id(above)]
    loop = script.above[id(above)]
    if not isinstance(loop, (ast.For, ast.While)):
        raise Unclear("the backward pass is not in a loop over batches", node)
    return loop, [node], function, call


def changed(source, tree, modules, wants, undivided):
    """The text with the wanted parts, and the reasons for those that are missing. A part whose
    change fails leaves no trace."""
    added, missing = [], []
    for part in wants:
        script = Changes(source, tree, modules)
        try:
            script.prepare()
            failed = None
            for one in added + [part]:
                apply_part(script, one, undivided)
            script.finish()
            compile(script.result(), "script", "exec")
            added.append(part)
        except Unclear as why:
            failed = {"part": part, "reason": str(why), "line": why.line, "file": script.module(why.node)}
        except (SyntaxError, RecursionError, KeyError, ValueError, IndexError, AttributeError) as fault:
            failed = {"part": part, "reason": "its change was not possible (%s: %s)" % (type(fault).__name__, fault), "line": 0}
        if failed:
            missing.append(failed)
    script = Changes(source, tree, modules)
    if added:
        script.prepare()
        for part in added:
            apply_part(script, part, undivided)
        script.finish()
    return script.result(), added, missing, script.summed


def apply_part(script, part, undivided):
    if part == "resume":
        Continuation(script).change()
        return
    for loop, backwards, *inner in backward_loops(script):
        counts = isinstance(loop, ast.While) or isinstance(loop.iter, ast.Call) and last(loop.iter.func) in ("range", "trange", "count") and sliced(script, loop, loop.iter) is None
        change = (Counted if counts else Accumulation)(script, loop, backwards, undivided, *inner)
        if part == "batch":
            change.header()
            Batch(script, change).change()
        else:
            change.change()


def patched(given):
    """The answer to a request for a patch: the changed script, and what is read in it."""
    source, wanted = given["sources"][0], given["patch"]
    tree, why = parsed(dict(source))
    if tree is None:
        try:
            line = ast.parse(source["text"]) and 0
        except Exception as fault:
            line = getattr(fault, "lineno", 0) or 0
        return json.dumps({"missing": [{"part": p, "reason": "it is not valid Python (%s)" % why, "line": line} for p in wanted["parts"]]})
    modules = [(m["path"], parsed(dict(m))[0]) for m in given["sources"][1:]]
    text_, added, missing, summed = changed(source["text"], tree, [(path, t) for path, t in modules if t is not None], wanted["parts"], wanted["undivided"])
    found = {"text": text_, "added": added, "missing": missing, "summed": summed}
    if added or not wanted["parts"]:
        found["reading"] = json.loads(answer(dict(given, sources=[dict(source, text=text_)] + given["sources"][1:])))
    return json.dumps(found)
