# Changes a script: arguments for its batch size and for the accumulation of gradients, and the
# continuation from its own checkpoint. Only code that is recognised with certainty is changed.
import io
import tokenize

SAFE = re.compile(r"print|log|write|save|checkpoint|append|add|scalar|update|set_|synchronize|empty_cache|collect|train$|eval|valid|test|display|plot|show|dump|flush|push|record|report|track|close|sleep|barrier|reduce|gather|tick|tock|start|stop|end|item|sum|mean|max|metric|acc|children|modules|named_|state_dict|tolist|detach|numpy|cpu|len|size")
OTHER_READERS = {"click", "fire", "typer", "absl", "hydra", "tyro", "simple_parsing", "pyrallis", "draccus", "jsonargparse", "gin", "tap", "sacred", "configargparse", "plac", "docopt", "ml_collections"}
TQDM = {"tqdm", "track", "progress_bar", "trange", "tqdm_notebook", "atpbar", "auto_tqdm", "prefetch"}


CYCLE = ast.Name(id="cycle", ctx=ast.Load())


class Unclear(Exception):
    """Code that is not recognised with certainty, and its node."""

    def __init__(self, why, node=None):
        Exception.__init__(self, why)
        self.node, self.line = node, getattr(node, "lineno", 0)


def simple(node):
    return isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))


def whole(node):
    """Whether evaluating an expression twice has no effect."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(index(node), (ast.Name, ast.Constant)):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def is_function(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def inside(node):
    """A node and all nodes in it that run with it, in the order of the source."""
    found, todo = [], [node]
    while todo:
        part = todo.pop()
        found.append(part)
        if part is node or not (is_function(part) or isinstance(part, ast.ClassDef)):
            todo.extend(reversed([n for n in ast.iter_child_nodes(part) if not isinstance(n, ast.expr_context)]))
    return found


def calls_in(node):
    return [n for n in inside(node) if isinstance(n, ast.Call)]


def reads_of(node):
    """The names, and the attributes as text, that a node reads."""
    return {text(n) for n in inside(node) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)}


class Changes:
    """A script, the meaning of its names, and the changes of its text."""

    def __init__(self, source, tree, modules=()):
        self.bytes, self.starts, self.tree, self.edits = source.encode("utf-8", "surrogatepass"), [0], tree, []
        self.newline = "\r\n" if "\r\n" in source else "\n"
        for line in self.bytes.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.nodes, self.modules = preorder([tree]), dict(modules)
        self.above, self.bound, self.words, self.elsewhere, self.kept, self.tracing = {}, {}, set(), [], [], set()
        for module in [tree] + list(self.modules.values()):
            nodes = self.nodes if module is tree else preorder([module])
            self.elsewhere += nodes if module is not tree else []
            for node in nodes:
                for child in ast.iter_child_nodes(node):
                    self.above[id(child)] = node
        for node in self.nodes:
            if isinstance(node, ast.Name):
                self.words.add(node.id)
            elif isinstance(node, ast.arg):
                self.words.add(node.arg)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.words.add(node.name)
        self.functions = [n for n in self.nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self.imports = {}
        for node in self.elsewhere:
            self.bind(node)
        self.imports = {}
        for node in self.nodes:
            self.bind(node)
        self.added, self.block, self.signatures, self.summed, self.within = {}, "", {}, "", None

    # Positions and edits.

    def at(self, line, column):
        return self.starts[line - 1] + column

    def start(self, node):
        return self.at(node.lineno, node.col_offset)

    def end(self, node):
        return self.at(node.end_lineno, node.end_col_offset)

    def code(self, node):
        return self.bytes[self.start(node):self.end(node)].decode("utf-8", "replace")

    def edit(self, start, end, replacement):
        self.edits.append((start, end, len(self.edits), replacement))

    def indent(self, node):
        """The blanks before a statement, which has to be the first one of its line."""
        before = self.bytes[self.starts[node.lineno - 1]:self.start(node)].decode("utf-8", "replace")
        if before.strip():
            raise Unclear("several statements are in one line", node)
        return before

    def unit(self, above):
        """The blanks by which the body of a statement is indented."""
        outer, inner = self.indent(above), self.indent(above.body[0])
        if not inner.startswith(outer) or inner == outer:
            raise Unclear("the body of %s is in the same line" % self.code(above)[:30].split("\n")[0], above)
        return inner[len(outer):]

    def first_line(self, node):
        decorators = getattr(node, "decorator_list", [])
        return min([node.lineno] + [d.lineno for d in decorators])

    def before(self, node, lines):
        """Inserts lines before a statement, with its indentation."""
        blanks = self.indent(node)
        at = self.starts[self.first_line(node) - 1]
        self.edit(at, at, "".join(blanks + line + self.newline if line else self.newline for line in lines))

    def after(self, node, lines, blanks=""):
        at = self.starts[node.end_lineno]
        if at > len(self.bytes):
            raise Unclear("the last line has no end", node)
        self.edit(at, at, "".join(blanks + line + self.newline if line else self.newline for line in lines))

    def shift(self, first, last, unit):
        """Indents the lines of some statements, except those that begin in a text: it stays as it is."""
        for line in range(first.lineno, last.end_lineno + 1):
            at = self.starts[line - 1]
            if line not in self.texts() and self.bytes[at:self.starts[line] - 1].strip():
                self.edit(at, at, unit)
        if self.bytes[self.end(last):self.starts[last.end_lineno] - 1].lstrip().startswith(b";"):
            raise Unclear("several statements are in one line", last)

    def texts(self):
        """The lines that begin in a text, as in one with three quotes."""
        if self.within is None:
            self.within, opened = set(), []
            for token in tokenize.tokenize(io.BytesIO(self.bytes).readline):
                kind = tokenize.tok_name[token.type]
                if kind == "FSTRING_START":  # from Python 3.12 on
                    opened.append(token.start[0])
                first = opened.pop() if kind == "FSTRING_END" else token.start[0] if kind == "STRING" else 0
                if first:
                    self.within.update(range(first + 1, token.end[0] + 1))
        return self.within

    def result(self):
        """The changed text."""
        data, at = [], 0
        for start, end, _, replacement in sorted(self.edits, key=lambda e: e[:3]):
            if start < at:
                raise Unclear("two changes are at one place")
            data += [self.bytes[at:start], replacement.encode("utf-8")]
            at = end
        return b"".join(data + [self.bytes[at:]]).decode("utf-8", "surrogatepass")

    def fresh(self, *names):
        """The first of several names that the script does not use."""
        for name in names:
            if name not in self.words:
                self.words.add(name)
                return name
        raise Unclear("the names %s are taken" % ", ".join(names))

    # Names.

    def scope(self, node):
        """The function in which a node is, or the module."""
        node = self.above.get(id(node))
        while node is not None and not is_function(node) and not isinstance(node, ast.Module):
            node = self.above.get(id(node))
        return node or self.tree

    def top(self, scope):
        """The module of a scope."""
        while not isinstance(scope, ast.Module):
            scope = self.scope(scope)
        return scope

    def module(self, node):
        """The path of the module in which a node is; empty for the script, and for no node."""
        while node is not None and not isinstance(node, ast.Module):
            node = self.above.get(id(node))
        return next((path for path, module in self.modules.items() if module is node), "")

    def statement(self, node):
        while not isinstance(node, ast.stmt):
            node = self.above[id(node)]
        return node

    def note(self, scope, name, how, what):
        self.bound.setdefault(id(scope), {}).setdefault(name, []).append((how, what))

    def bind(self, node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.target(self.scope(node), target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.target(self.scope(node), node.target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.note(self.scope(node), node.target.id, "other", node)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            for n in ast.walk(node.target):
                if isinstance(n, ast.Name):
                    self.note(self.scope(node), n.id, "loop", node.iter)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            for n in ast.walk(node.optional_vars):
                if isinstance(n, ast.Name):
                    self.note(self.scope(node), n.id, "value" if n is node.optional_vars else "other", node.context_expr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for a in node.names:
                name = a.asname or a.name.split(".")[0]
                self.words.add(name)
                self.note(self.scope(node), name, "other", node)
                self.imports[name] = (getattr(node, "module", None) or "", a.name)
        elif is_function(node):
            if not isinstance(node, ast.Lambda):
                self.note(self.scope(node), node.name, "function", node)
            a = node.args
            for p in getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs + [x for x in (a.vararg, a.kwarg) if x]:
                self.note(node, p.arg, "param", p)
        elif isinstance(node, ast.ClassDef):
            self.note(self.scope(node), node.name, "class", node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                self.bound.setdefault(id(self.scope(node)), {}).setdefault("global " + name, []).append(("other", node))
        elif type(node).__name__ == "NamedExpr":
            self.target(self.scope(node), node.target, node.value)

    def target(self, scope, target, value):
        if isinstance(target, ast.Name):
            if "global " + target.id in self.bound.get(id(scope), {}):
                scope = self.top(scope)
            self.note(scope, target.id, "value", value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            paired = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in value.elts + target.elts)
            for n, part in enumerate(target.elts):
                if paired:
                    self.target(scope, part, value.elts[n])
                elif isinstance(part, (ast.Name, ast.Attribute)):
                    self.note(*((scope, part.id) if isinstance(part, ast.Name) else (self.top(scope), "." + part.attr)), "item", (value, n))
                else:
                    self.target(scope, part, ast.Constant(value=...))
        elif isinstance(target, ast.Attribute):
            self.note(self.top(scope), "." + target.attr, "value", value)

    def owner(self, name, scope):
        """The scope in which a name is bound as it is seen in another scope."""
        while scope is not None:
            if name in self.bound.get(id(scope), {}):
                return scope
            scope = self.scope(scope) if not isinstance(scope, ast.Module) else None
        return None

    def origins(self, node, scope, depth=0):
        """The expressions, with their scopes, that a name may stand for; none if one is unknown."""
        return [f for f in self.traced(node, scope, depth) if f[0] is not CYCLE]

    def traced(self, node, scope, depth):
        found = []
        if depth > 12:
            return []
        if isinstance(node, ast.Name):
            owner = self.owner(node.id, scope)
            if owner is None:
                return []
            if (id(owner), node.id) in self.tracing:
                return [(CYCLE, scope)]
            self.tracing.add((id(owner), node.id))
            try:
                return self.bindings(node, owner, depth)
            finally:
                self.tracing.discard((id(owner), node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            for how, what in self.bound.get(id(self.top(scope)), {}).get("." + node.attr, []):
                more = []
                if how == "value" and id(what) in self.above:
                    more = self.traced(what, self.scope(what), depth + 1)
                elif how == "item":
                    more = self.items(what[0], what[1], self.scope(what[0]), depth + 1)
                if not more:
                    return []
                found += more
            return found
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            for value in [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values:
                more = self.traced(value, scope, depth + 1)
                if not more:
                    return []
                found += more
            return found
        if isinstance(node, ast.Subscript):
            for of, at in self.traced(node.value, scope, depth + 1):
                if isinstance(of, ast.DictComp):
                    found += self.traced(of.value, at, depth + 1)
                elif isinstance(of, ast.Dict):
                    key, known = constant(index(node))
                    for k, v in zip(of.keys, of.values):
                        if k is None or known and constant(k) != (key, True):
                            continue
                        more = self.traced(v, at, depth + 1)
                        if not more:
                            return []
                        found += more
                else:
                    return [(node, scope)]
            return found
        if isinstance(node, ast.Call):
            if last(node.func) in TQDM and node.args:
                return self.traced(node.args[0], scope, depth + 1)
            made = self.called(node, scope)
            if made is not None:
                returns = [n for n in inside(made) if isinstance(n, ast.Return) and n.value is not None]
                for r in returns:
                    more = self.traced(r.value, made, depth + 1)
                    if not more:
                        return []
                    found += more
                return found
        return [(node, scope)]

    def bindings(self, node, owner, depth):
        """The origins of a name by its assignments in a scope."""
        found = []
        for how, what in self.bound[id(owner)][node.id]:
            more = []
            if how == "value":
                more = self.traced(what, self.scope(what) if id(what) in self.above else owner, depth + 1)
            elif how == "item":
                more = self.items(what[0], what[1], self.scope(what[0]), depth + 1)
            elif how == "param":
                more = self.given(owner, node.id, depth + 1)
            if not more:
                return []
            found += [m for m in more if m[0] not in [f[0] for f in found]]
        return found

    def called(self, call, scope):
        """The function of the script that a call runs."""
        if not isinstance(call.func, ast.Name):
            return None
        owner = self.owner(call.func.id, scope)
        bound = self.bound[id(owner)][call.func.id] if owner is not None else []
        if len(bound) == 1 and bound[0][0] == "function":
            return bound[0][1]
        if bound and all(isinstance(what, ast.ImportFrom) for _, what in bound):
            return self.imported(bound[-1][1], call.func.id)
        stars = [n for n in self.nodes if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"] if not bound else []
        return next((f for f in [self.imported(n, call.func.id) for n in stars] if f is not None), None)

    def imported(self, statement, name):
        """The function of a module of the script that an import names."""
        original = next((a.name for a in statement.names if (a.asname or a.name) == name), name)
        stem = (statement.module or "").replace(".", "/")
        for path, module in self.modules.items():
            if re.sub(r"(/__init__)?\.py$", "", path).endswith(stem):
                made = [f for f in module.body if isinstance(f, ast.FunctionDef) and f.name == original]
                if made:
                    return made[-1]
        return None

    def items(self, node, n, scope, depth):
        """The n-th part of an expression."""
        found = []
        for of, at in self.traced(node, scope, depth):
            if isinstance(of, (ast.Tuple, ast.List)) and n < len(of.elts):
                more = self.traced(of.elts[n], at, depth + 1)
            elif isinstance(of, ast.Call) and last(of.func) == "parse_known_args" and n == 0 or isinstance(of, ast.Call) and last(of.func) == "prepare":
                more = self.traced(of.args[n], at, depth + 1) if last(of.func) == "prepare" and n < len(of.args) else [(of, at)]
            else:
                return []
            if not more:
                return []
            found += more
        return found

    def sites(self, function):
        """The calls of a function; none if it is also used otherwise."""
        found, method = [], isinstance(self.above.get(id(function)), ast.ClassDef)
        if method and function.name == "__init__":
            return [n for n in self.nodes if isinstance(n, ast.Call) and last(n.func) == self.above[id(function)].name]
        for node in self.nodes:
            if method:
                used = isinstance(node, ast.Attribute) and node.attr == function.name
            else:
                used = isinstance(node, ast.Name) and node.id == function.name and isinstance(node.ctx, ast.Load) and self.owner(node.id, self.scope(node)) is self.scope(function)
            if not used:
                continue
            above = self.above.get(id(node))
            if isinstance(above, ast.Call) and last(above.func) == "spawn" and above.args[:1] == [node]:
                given = next((k.value for k in above.keywords if k.arg == "args"), above.args[1] if len(above.args) > 1 else None)
                if isinstance(given, ast.Tuple):
                    above = ast.copy_location(ast.Call(func=node, args=[ast.Constant(value=0)] + given.elts, keywords=[]), above)
                    above.spawned = True
                    self.kept.append(above)  # keeps its id
            if not (isinstance(above, ast.Call) and above.func is node):
                return []
            found.append(above)
        return found

    def given(self, function, name, depth):
        """What the callers of a function give for a parameter."""
        if isinstance(function, ast.Lambda):
            return []
        params = [p.arg for p in getattr(function.args, "posonlyargs", []) + function.args.args]
        plain_of = function.args.args
        defaults = dict(zip(reversed([p.arg for p in plain_of]), reversed(function.args.defaults)))
        defaults.update({p.arg: d for p, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is not None})
        ahead = 1 if params[:1] == ["self"] else 0
        found = []
        for call in self.sites(function):
            words = {k.arg: k.value for k in call.keywords}
            place = params.index(name) - ahead if name in params else -1
            value = words.get(name)
            if any(isinstance(a, ast.Starred) for a in call.args) or None in words:
                return []
            if value is None and 0 <= place < len(call.args):
                value = call.args[place]
            if value is None:
                value = defaults.get(name)
            more = self.traced(value, self.scope(value), depth) if value is not None else []
            if not more:
                return []
            found += more
        return found

    # The command line.

    def parsings(self):
        return [n for n in self.nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("parse_args", "parse_known_args") ]

    def foreign(self):
        """A library other than argparse that reads the command line."""
        for name, (module, original) in self.imports.items():
            for part in (module.split(".")[0], original.split(".")[0]):
                if part in OTHER_READERS or original in ("HfArgumentParser", "TrlParser", "LightningCLI"):
                    return original if original in ("HfArgumentParser", "TrlParser", "LightningCLI") else part
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and dotted(node) == "sys.argv" and not isinstance(self.above[id(node)], ast.Call) or isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith("configurator.py"):
                return "sys.argv"
        return ""

    def defaulted(self, call):
        """Whether the words that are given to a parser are those of the command line."""
        if len(call.args) != 1 or call.keywords:
            return False
        if text(call.args[0]) == "sys.argv[1:]" or constant(call.args[0]) == (None, True):
            return True
        found = self.origins(call.args[0], self.scope(call)) if isinstance(call.args[0], ast.Name) else []
        if not found and is_function(self.scope(call)):  # a parameter that no caller gives
            a = self.scope(call).args
            defaults = dict(zip(reversed([p.arg for p in a.args]), reversed(a.defaults)))
            sites = self.sites(self.scope(call))
            return text(call.args[0]) in defaults and constant(defaults[text(call.args[0])]) == (None, True) and all(not c.args and not c.keywords for c in sites)
        return bool(found) and all(constant(n) == (None, True) or text(n) == "sys.argv[1:]" for n, _ in found)

    def is_space(self, name, scope):
        """Whether a name is the result of the parser, or the parser before."""
        found = self.origins(name, scope)
        again = isinstance(name, ast.Name) and name.id == self.parser
        return any(n in self.parsed for n, _ in found) and all(n in self.parsed or again and isinstance(n, ast.Call) and last(n.func) == "ArgumentParser" for n, _ in found)

    def space(self, scope, line=0):
        """The expression for the parsed arguments in a scope; empty if there is none."""
        at = scope
        while at is not None:
            for name, ways in self.bound.get(id(at), {}).items():
                if name.startswith((".", "global ")) or not any(how in ("value", "item", "param") for how, _ in ways):
                    continue
                node = ast.Name(id=name, ctx=ast.Load())
                if self.owner(name, scope) is at and self.is_space(node, at):
                    if at is self.tree and scope is not at and self.spawned and all(self.guarded(what if how == "value" else what[0]) for how, what in ways if how in ("value", "item")):
                        continue  # not assigned in a process that is spawned
                    if at is scope and line and all(how != "param" and self.statement(what if how == "value" else what[0]).end_lineno >= line for how, what in ways):
                        continue  # assigned later
                    return name
            at = self.scope(at) if at is not self.tree else None
        for attribute in ("args", "opt", "opts", "config", "cfg", "hparams", "params"):
            node = ast.Attribute(value=ast.Name(id="self", ctx=ast.Load()), attr=attribute, ctx=ast.Load())
            if is_function(scope) and "self" in self.bound.get(id(scope), {}) and "." + attribute in self.bound.get(id(self.tree), {}) and self.is_space(node, scope):
                return "self." + attribute
        return ""

    def prepare(self):
        """Finds the parser to which arguments are added; without one, the script gets one."""
        self.parsed, self.parser, self.made = self.parsings(), "", False
        self.spawned = any(isinstance(n, ast.Call) and last(n.func) in ("spawn", "Process", "start_processes") for n in self.nodes)
        if self.parsed:
            if len(self.parsed) > 1:
                raise Unclear("several parsers read the command line", self.parsed[1])
            call = self.parsed[0]
            if (call.args or call.keywords) and not self.defaulted(call):
                raise Unclear("%s reads given words, not the command line" % self.code(call)[:40], call)
            if not isinstance(call.func.value, ast.Name):
                raise Unclear("the parser has no name", call)
            self.parser = call.func.value.id
            made = [n for n, _ in self.origins(call.func.value, self.scope(call))]
            if not any(isinstance(n, ast.Call) and last(n.func) == "ArgumentParser" for n in made) or not all(n in self.parsed or isinstance(n, ast.Call) and last(n.func) == "ArgumentParser" for n in made):
                raise Unclear("what %s reads is not known" % self.parser, call)
            if any(isinstance(n, ast.Attribute) and n.attr == "add_subparsers" for n in self.nodes):
                raise Unclear("the script has several commands (add_subparsers)", call)
            if isinstance(self.above.get(id(call)), ast.Call) and last(self.above[id(call)].func) == "vars":
                raise Unclear("the arguments are made a dictionary", call)
            return
        other = self.foreign()
        if other:
            raise Unclear("it reads its command line with %s" % other)
        for path, module in self.modules.items():
            if any(isinstance(n, ast.Call) and last(n.func) in ("parse_args", "parse_known_args") for s in module.body if not is_main(s) for n in ast.walk(s)):
                raise Unclear("%s reads the command line: a second parser would refuse its arguments" % path)
        self.made = True

    def guarded(self, node):
        """Whether a statement runs only in the process that starts the script."""
        while node is not None and not is_main(node):
            node = self.above.get(id(node))
        return node is not None

    def dests(self):
        """The arguments of the script, with their names."""
        found = {}
        for node in self.nodes:
            if isinstance(node, ast.Call) and last(node.func) == "add_argument":
                options = [constant(a)[0] for a in node.args if isinstance(constant(a)[0], str)]
                dest = {k.arg: k.value for k in node.keywords}.get("dest")
                name = constant(dest)[0] if dest is not None else next((o.lstrip("-").replace("-", "_") for o in options if o.startswith("--")), None)
                if name:
                    found[name] = options
        return found

    def underscores(self):
        return any("_" in o for options in self.dests().values() for o in options)

    def option(self, name, words):
        """Adds an argument, and returns its attribute."""
        if name in self.added:
            return name
        if name in self.dests():
            raise Unclear("it has an argument --%s already, which is used for something else" % name)
        spelling = "--" + (name if self.underscores() else name.replace("_", "-"))
        self.added[name] = '"%s", %s' % (spelling, words)
        return name

    def argument(self, name, words, node, line=0):
        """The text of a new argument's value at a node."""
        scope = self.scope(node)
        self.option(name, words)
        if self.made:
            space = self.own(scope)
        else:
            space = self.space(scope, line)
        if space:
            return space + "." + name
        return self.threaded(scope, name, node, 0)

    def own(self, scope):
        """The name of the namespace of a new parser, which is global."""
        if not self.block:
            self.block = self.fresh("args", "cli_args", "command_line")
        return self.block

    def threaded(self, function, name, node, depth):
        """Hands an argument through the parameters of a function."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or depth > 3:
            raise Unclear("the parsed arguments are not known here", node)
        if (id(function), name) in self.signatures:
            return self.signatures[id(function), name]
        sites, a = self.sites(function), function.args
        if not sites or a.vararg or a.kwarg or a.kwonlyargs or isinstance(self.above.get(id(function)), ast.ClassDef):
            raise Unclear("the parsed arguments are not known in %s()" % function.name, node)
        if any(getattr(c, "spawned", False) for c in sites):
            raise Unclear("the parsed arguments are not known in %s()" % function.name, node)
        if any(isinstance(x, ast.Starred) for c in sites for x in c.args) or any(k.arg is None for c in sites for k in c.keywords):
            raise Unclear("the parsed arguments are not known in %s()" % function.name, node)
        inner = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {p.arg for p in a.args}
        word = name if name not in inner else name + "_"
        self.signatures[id(function), name] = word
        self.insert_last(function, a.args + getattr(a, "posonlyargs", []), a.defaults, "%s=1" % word)
        for call in sites:
            scope = self.scope(call)
            space = self.own(scope) if self.made else self.space(scope, call.lineno)
            given = space + "." + name if space else self.threaded(scope, name, call, depth + 1)
            self.insert_last(call, call.args + [k.value for k in call.keywords], [], "%s=%s" % (word, given))
        return word

    def insert_last(self, node, parts, defaults, word):
        """Adds a parameter or an argument after the others."""
        parts = sorted(parts + list(defaults), key=self.end)
        if parts:
            at = self.end(parts[-1])
            for p in parts:
                annotation = getattr(p, "annotation", None)
                if annotation is not None:
                    at = max(at, self.end(annotation))
            while self.bytes[at:at + 1] in (b")",) and self.bytes[self.start(parts[-1]) - 1:self.start(parts[-1])] == b"(" and isinstance(parts[-1], (ast.BinOp, ast.Compare, ast.BoolOp, ast.IfExp)):
                at += 1
            self.edit(at, at, ", " + word)
            return
        opening = self.bytes.index(b"(", self.start(node) if is_function(node) else self.end(node.func))
        self.edit(opening + 1, opening + 1, word)

    def finish(self):
        """Writes the new arguments."""
        if not self.added:
            return
        if self.made:
            self.new_parser()
            return
        call = self.parsed[0]
        self.before(self.statement(call), ["%s.add_argument(%s)" % (self.parser, words) for words in self.added.values()])

    def new_parser(self):
        if not self.block:
            raise Unclear("no place uses the new arguments")
        parser = self.fresh("parser", "arg_parser", "cli")
        place = None
        for s in self.tree.body:
            text_only = isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
            if isinstance(s, (ast.Import, ast.ImportFrom)):
                place = s
            elif not text_only:
                break
        if place is None:
            raise Unclear("it does not begin with imports")
        lines = [] if "argparse" in self.imports else ["import argparse"]
        # A module that imports the script has words of another command. The ranks that it spawns have its own.
        given = 'None if __name__ in ("__main__", "__mp_main__") else []' if any(map(is_main, self.tree.body)) else ""
        lines += ["", "%s = argparse.ArgumentParser()" % parser] + ["%s.add_argument(%s)" % (parser, words) for words in self.added.values()] + ["%s = %s.parse_args(%s)" % (self.block, parser, given)]
        self.indent(place)
        self.after(place, lines)
        rest = self.bytes[self.starts[place.end_lineno]:].split(b"\n", 1)[0].strip()
        if rest and not rest.startswith((b"def", b"class", b"@")):
            self.after(place, [""])
