# Reads a job's Python sources, which come as JSON, and says as JSON what they say of
# the job's own settings: which there are, and where their values go. Nothing of the
# job is imported or run. Values are expressions whose names are looked up through
# assignments, attributes and calls of local functions, whatever the order in which
# they run: what cannot be looked up stays a name.
import ast
import json
import re
import sys

DEPTH, STEPS, ALL, WIDTH = 24, 1500, 120000, 12
CONFIG = re.compile(r"(^|_)(args?|opts?|options?|cfg|conf|configs?|configuration|hparams?|hps?|hp|flags?|params?|settings?|namespace|parsed|training_args|model_args|data_args)$", re.I)
OPTIMIZER = re.compile(r"optim|scaler|(^|[._])opts?\d*($|[._\[])|(^|[._])(o|opt_[a-z]+|engine|model_engine)($|\[)", re.I)
PASSED = {"EasyDict", "edict", "Namespace", "SimpleNamespace", "Munch", "munchify", "AttrDict", "DotMap", "Box", "create", "to_container", "structured",
          "dict", "vars", "deepcopy", "copy", "ConfigDict", "Dict", "DictConfig", "asdict", "Path", "str", "abspath", "expanduser", "Config", "CfgNode", "HParams"}
LOADS = {"yaml.load", "yaml.safe_load", "yaml.full_load", "yaml.unsafe_load", "json.load", "json.loads", "toml.load", "tomllib.load", "OmegaConf.load", "safe_load", "load_yaml"}
CHECKPOINTS = {"gradient_checkpointing_enable", "enable_gradient_checkpointing", "set_grad_checkpointing", "checkpoint", "checkpoint_sequential",
               "apply_activation_checkpointing", "_set_gradient_checkpointing", "enable_gradient_checkpoint", "checkpoint_wrapper"}
BATCH = re.compile(r"^(train_|per_device_train_|per_gpu_train_|micro_)?(batch_?size|bs|bsz)$")


def text(node):
    try:
        return " ".join(ast.unparse(node).split())[:120]
    except Exception:  # before Python 3.9
        pass
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return text(node.value) + "." + node.attr
    if isinstance(node, ast.Call):
        return text(node.func) + "(" + ", ".join(text(a) for a in node.args) + ")"
    if isinstance(node, ast.Subscript):
        return text(node.value) + "[" + text(index(node)) + "]"
    if isinstance(node, ast.Constant):
        return repr(node.value)[:60]
    if isinstance(node, ast.BinOp):
        return text(node.left) + " " + OPERATORS.get(type(node.op), "?") + " " + text(node.right)
    if isinstance(node, ast.Compare):
        return " ".join([text(node.left)] + [text(c) for c in node.comparators])
    return " ".join(text(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))[:120] or type(node).__name__


OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}


def index(node):
    inner = node.slice
    return getattr(inner, "value", inner) if type(inner).__name__ == "Index" else inner


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    elif isinstance(node, ast.Call):
        parts.append(dotted(node.func) + "()")
    else:
        parts.append("?")
    return ".".join(reversed(parts))


def last(node):
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def constant(node):
    """The value of a literal, and whether it is one."""
    try:
        value = ast.literal_eval(node)
    except Exception:
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Pow, ast.Add, ast.Sub, ast.FloorDiv)):
            (a, known), (b, also) = constant(node.left), constant(node.right)
            if known and also and type(a) is int and type(b) is int and abs(a) < 1 << 40 and 0 <= b < 1 << 20:
                if isinstance(node.op, ast.Mult):
                    return a * b, True
                if isinstance(node.op, ast.Pow) and b < 40:
                    return a ** b, abs(a) < 1 << 16
        return None, False
    return value, isinstance(value, (int, float, str, bool, type(None)))


class Scope:
    """A module or a function: what is assigned in it."""

    def __init__(self, node, file, parent, cls):
        self.node, self.file, self.parent, self.cls = node, file, parent, cls
        self.assigned = {}  # name: [(how, expression)]
        self.globals = set()
        self.name = getattr(node, "name", "")
        self.calls, self.ifs, self.fors, self.divisions, self.returns, self.slices = [], [], [], [], [], []

    def params(self):
        a = getattr(self.node, "args", None)
        if a is None:
            return []
        return [p.arg for p in getattr(a, "posonlyargs", []) + a.args]

    def default(self, name):
        a = self.node.args
        plain = getattr(a, "posonlyargs", []) + a.args
        for p, d in zip(reversed(plain), reversed(a.defaults)):
            if p.arg == name:
                return d
        for p, d in zip(a.kwonlyargs, a.kw_defaults):
            if p.arg == name:
                return d
        return None

    def annotation(self, name):
        a = self.node.args
        for p in getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs:
            if p.arg == name:
                return p.annotation
        return None

    def has(self, name):
        a = getattr(self.node, "args", None)
        return a is not None and any(p.arg == name for p in getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs)


class File:
    def __init__(self, path, tree):
        self.path, self.tree = path, tree
        self.stem = re.sub(r"(/__init__)?\.py$", "", path).rsplit("/", 1)[-1]
        self.imports = {}  # local name: (module, name)


class Program:
    """Everything that the sources hold, by name."""

    def __init__(self, sources):
        self.files, self.scopes, self.functions, self.classes = [], [], {}, {}
        self.stores = {}  # attribute or key: [(expression, scope, text of the base)]
        self.calls = {}  # last name of what is called: [(call, scope)]
        self.settings, self.by_dest, self.fields = [], {}, {}
        self.steps = self.all = 0  # of one value, and of all
        self.memo = {}
        self.failed = []
        for n, source in enumerate(sources):
            try:
                tree = ast.parse(source["text"])
            except Exception as fault:
                self.failed.append({"file": source["path"], "why": type(fault).__name__})
                continue
            file = File(source["path"], tree)
            self.files.append(file)
            if n:
                tree.body = [s for s in tree.body if not is_main(s)]
            self.collect(tree, file, None, None)
        self.original()
        self.reach()

    def original(self):
        """Calls by another name than that of the definition are calls of it, too."""
        self.aliases = {}
        for file in self.files:
            for name, (_, original) in file.imports.items():
                if name != original and (original in self.classes or original in self.functions):
                    self.aliases.setdefault(name, set()).add(original)
        for name, originals in self.aliases.items():
            for original in originals:
                self.calls.setdefault(original, []).extend((c, s) for c, s in self.calls.get(name, []) if self.real(name, s) == original)

    def real(self, name, scope):
        """The name under which something that a file imports is defined."""
        original = scope.file.imports.get(name, ("", name))[1]
        return original if original in self.classes or original in self.functions else name

    def collect(self, node, file, parent, cls):
        scope = Scope(node, file, parent, cls)
        self.scopes.append(scope)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions.setdefault(node.name, []).append(scope)
        body = node.body if isinstance(node.body, list) else [node.body]
        self.walk(body, scope, file, cls)
        return scope

    def walk(self, nodes, scope, file, cls):
        todo = list(reversed(nodes))
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = self.collect(node, file, scope, cls)
                scope.assigned.setdefault(node.name, []).append(("function", inner))
                todo.extend(node.decorator_list)
                continue
            if isinstance(node, ast.ClassDef):
                self.declare(node, scope, file)
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for a in node.names:
                    file.imports[a.asname or a.name.split(".")[0]] = (getattr(node, "module", None) or "", a.name)
            self.note(node, scope)
            todo.extend(reversed(list(ast.iter_child_nodes(node))))

    def declare(self, node, scope, file):
        known = {"node": node, "file": file, "methods": {}, "fields": {}, "bases": [last(b) for b in node.bases], "scope": scope,
                 "decorators": [last(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]}
        self.classes.setdefault(node.name, []).append(known)
        for s in node.body:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
                known["methods"][s.name] = self.collect(s, file, scope, node.name)
            elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
                known["fields"][s.target.id] = (s.value, s.annotation, s.lineno)
            elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                known["fields"][s.targets[0].id] = (s.value, None, s.lineno)
            elif isinstance(s, ast.ClassDef):
                self.declare(s, scope, file)

    def note(self, node, scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, node.value, scope)
        elif isinstance(node, ast.AugAssign):
            value = ast.BinOp(left=node.target, op=node.op, right=node.value)
            ast.copy_location(value, node)
            left = type(node.target)
            if left in (ast.Name, ast.Attribute):
                value.left = ast.copy_location(ast.Name(id=node.target.id, ctx=ast.Load()) if left is ast.Name
                                               else ast.Attribute(value=node.target.value, attr=node.target.attr, ctx=ast.Load()), node)
            self.assign(node.target, value, scope)
            if isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mult)):
                scope.divisions.append((node.target, node.value, node))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
            scope.divisions.append((node.left, node.right, node))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, item.context_expr, scope)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            scope.fors.append(node)
            for n in ast.walk(node.target):
                if isinstance(n, ast.Name):
                    scope.assigned.setdefault(n.id, []).append(("loop", node.iter))
        elif isinstance(node, ast.If):
            scope.ifs.append(node)
        elif isinstance(node, ast.IfExp):
            scope.ifs.append(node)
        elif isinstance(node, ast.Call):
            scope.calls.append(node)
            self.calls.setdefault(last(node.func), []).append((node, scope))
        elif isinstance(node, ast.Return) and node.value is not None:
            scope.returns.append(node.value)
        elif isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Subscript) and isinstance(index(node), ast.Slice):
            scope.slices.append(node)
        if type(node).__name__ == "NamedExpr":
            self.assign(node.target, node.value, scope)

    def assign(self, target, value, scope):
        if isinstance(target, ast.Name):
            owner = scope
            if target.id in scope.globals:
                while owner.parent is not None:
                    owner = owner.parent
            owner.assigned.setdefault(target.id, []).append(("value", value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for n, part in enumerate(target.elts):
                if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                    self.assign(part, value.elts[n], scope)
                elif isinstance(part, ast.Name):
                    scope.assigned.setdefault(part.id, []).append(("item", (value, n)))
        elif isinstance(target, ast.Attribute):
            self.stores.setdefault(target.attr, []).append((value, scope, text(target.value)))
        elif isinstance(target, ast.Subscript):
            key, known = constant(index(target))
            if known and isinstance(key, str):
                self.stores.setdefault(key, []).append((value, scope, text(target.value)))

    def reach(self):
        """Leaves out functions and classes that no code which runs names."""
        used, todo = set(), [s.node for s in self.scopes if isinstance(s.node, ast.Module)]
        names = {}
        for name, scopes in self.functions.items():
            names.setdefault(name, []).extend(s.node for s in scopes if s.cls is None)
        for name, all_of in self.classes.items():
            names.setdefault(name, []).extend(c["node"] for c in all_of)
        seen = set()
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            stack = list(ast.iter_child_nodes(node))
            while stack:
                inner = stack.pop()
                nested = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                if nested and isinstance(node, ast.Module):
                    stack.extend(inner.decorator_list)
                    if inner.decorator_list and isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        todo.append(inner)  # called by what decorates it
                    continue
                name = inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else ""
                if name and name not in used:
                    used.add(name)
                    todo.extend(names.get(name, []))
                    for original in self.aliases.get(name, ()):
                        used.add(original)
                        todo.extend(names.get(original, []))
                stack.extend(ast.iter_child_nodes(inner))
        self.live = [s for s in self.scopes if self.alive(s, seen, used)]
        lives = {id(s) for s in self.live}
        self.calls = {name: [(c, s) for c, s in found if id(s) in lives] for name, found in self.calls.items()}
        self.stores = {name: [x for x in found if id(x[1]) in lives] for name, found in self.stores.items()}

    def alive(self, scope, seen, used):
        if isinstance(scope.node, ast.Module) or id(scope.node) in seen:
            return True
        if scope.cls is not None:
            framework = any(set(c["bases"]) - {"object", "ABC"} for c in self.classes.get(scope.cls, []))
            return scope.cls in used and (framework or scope.name in used or scope.name.startswith("__"))
        return scope.parent is not None and not isinstance(scope.parent.node, ast.Module) and self.alive(scope.parent, seen, used)

    # -- values

    def value(self, node, scope, active=(), depth=0):
        """What an expression is, with its names looked up."""
        top = not active
        if top and (id(node), id(scope)) in self.memo:
            return self.memo[id(node), id(scope)]
        self.steps, self.all = (1 if top else self.steps + 1), self.all + 1
        if depth > DEPTH or self.steps > STEPS or self.all > ALL:
            return {"name": text(node)}
        if id(node) in active:
            return None
        result = self.look(node, scope, active + (id(node),), depth + 1)
        if top:
            self.memo[id(node), id(scope)] = result
        return result

    def look(self, node, scope, active, depth):
        value, known = constant(node)
        if known:
            return {"const": value}
        if isinstance(node, ast.Name):
            return self.named(node, scope, active, depth)
        if isinstance(node, ast.Attribute):
            return self.member(node.value, node.attr, node, scope, active, depth, None)
        if isinstance(node, ast.Subscript):
            return self.item(node, scope, active, depth)
        if isinstance(node, ast.Call):
            return self.called(node, scope, active, depth)
        if isinstance(node, ast.BinOp):
            left, right = self.value(node.left, scope, active, depth), self.value(node.right, scope, active, depth)
            if left is None or right is None:
                return None
            return {"op": OPERATORS.get(type(node.op), "?"), "of": [plain(left), plain(right)]}
        if isinstance(node, ast.IfExp):
            if constant(node.body)[1] and constant(node.orelse)[1] and isinstance(constant(node.body)[0], bool):
                return self.value(node.test, scope, active, depth)
            return alternatives([self.value(node.body, scope, active, depth), self.value(node.orelse, scope, active, depth)], text(node))
        if isinstance(node, ast.BoolOp):
            if isinstance(node.op, ast.Or):
                return alternatives([self.value(v, scope, active, depth) for v in node.values], text(node))
            return {"op": "and", "of": [plain(self.value(v, scope, active, depth)) for v in node.values]}
        if isinstance(node, ast.UnaryOp):
            return {"op": "not" if isinstance(node.op, ast.Not) else "-", "of": [plain(self.value(node.operand, scope, active, depth))]}
        if isinstance(node, ast.Compare):
            return {"op": "compare", "of": [plain(self.value(v, scope, active, depth)) for v in [node.left] + node.comparators]}
        if isinstance(node, ast.JoinedStr):
            return {"op": "text", "of": [plain(self.value(v.value if isinstance(v, ast.FormattedValue) else v, scope, active, depth)) for v in node.values]}
        if isinstance(node, (ast.Dict, ast.Tuple, ast.List)):
            return {"literal": (node, scope)}
        return {"name": text(node)}

    def named(self, node, scope, active, depth):
        name, at = node.id, scope
        if name in ("self", "cls") and scope.cls:
            return {"instance": scope.cls}
        while at is not None:
            if name in at.assigned or at.has(name):
                return self.variable(name, at, active, depth)
            at = at.parent
        module, original = scope.file.imports.get(name, (None, None))
        if module is not None:
            stem = module.rsplit(".", 1)[-1]
            for s in self.scopes:
                if isinstance(s.node, ast.Module) and s.file.stem == stem and original in s.assigned:
                    return self.variable(original, s, active, depth)
        if name in self.classes:
            return {"class": name}
        return {"name": name}

    def variable(self, name, at, active, depth):
        found = []
        for how, what in at.assigned.get(name, []):
            if how == "value":
                found.append(self.value(what, at, active, depth))
            elif how == "item":
                found.append(self.part(what[0], what[1], at, active, depth))
            elif how == "function":
                return {"name": name}
            elif how == "set":
                found.append({"set": what})
            else:
                found += self.elements(name, what, at, active, depth)
        if at.has(name):
            found.append(self.argument(name, at, active, depth))
        return alternatives(found, name)

    def elements(self, name, node, at, active, depth):
        """What a loop's variable may be."""
        of = self.value(node, at, active, depth)
        if of is not None and "literal" in of and isinstance(of["literal"][0], (ast.List, ast.Tuple)):
            items, scope = of["literal"][0].elts, of["literal"][1]
            return [self.value(item, scope, active, depth) for item in items[:WIDTH] if not isinstance(item, ast.Tuple)] or [{"name": name}]
        return [{"name": name}]

    def argument(self, name, at, active, depth):
        """What the callers of a function give for one of its parameters."""
        if id(at) in self.params:
            for known in self.params[id(at)]:
                if known.get("param") == name:
                    return {"set": known["id"]}
        if at.node in self.configured:
            first = [p for p in at.params() if p not in ("self", "cls")][:1]
            if first == [name]:
                return self.configured[at.node]
        key = ("param", id(at), name)
        if key in active:
            return None
        active = active + (key,)
        found, missing, sites = [], False, self.sites(at)
        for call, scope, bound in sites[:WIDTH]:
            given = self.bound(call, scope, at, name, bound)
            if given is None:
                missing = True
            elif given[0] == "value":
                found.append(self.value(given[1], given[2], active, depth))
            else:
                found.append(given[1])
        default = at.default(name)
        if default is not None and (missing or not sites):
            value = plain(self.value(default, at, active, depth))
            if not ("const" in value and value["const"] is None and found):
                found.append(dict(value, default=True))
        return alternatives(found, name)

    def sites(self, at):
        """Where a function is called: the call, its scope, and how many parameters are bound before."""
        name = at.name
        found = []
        if at.cls:
            if name == "__init__":
                found = [(c, s, 1) for c, s in self.calls.get(at.cls, [])]
                for subclass, all_of in self.classes.items():
                    for c in all_of:
                        if at.cls in c["bases"]:
                            if "__init__" in c["methods"]:
                                inner = c["methods"]["__init__"]
                                found += [(call, inner, 1) for call in inner.calls if last(call.func) == "__init__" and "super" in text(call.func)]
                            else:
                                found += [(call, s, 1) for call, s in self.calls.get(subclass, [])]
            elif name in ("__call__", "forward"):
                mine = set(at.params()[1:])
                for all_of in self.calls.values():
                    for c, s in all_of:
                        words = {k.arg for k in c.keywords if k.arg}
                        if words and words <= mine and last(c.func) not in self.functions and last(c.func) not in self.classes:
                            found.append((c, s, 1))
            else:
                static = any(last(d) == "staticmethod" for d in at.node.decorator_list)
                found = [(c, s, 0 if static else 1) for c, s in self.calls.get(name, []) if isinstance(c.func, ast.Attribute)]
        else:
            found = [(c, s, 0) for c, s in self.calls.get(name, []) if self.means(c.func, s, at)]
        for c, s in self.calls.get("spawn", []) + self.calls.get("Process", []) + self.calls.get("start_processes", []):
            words = {k.arg: k.value for k in c.keywords}
            target = words.get("target", c.args[0] if c.args else words.get("fn"))
            if target is None or last(target) != name:
                continue
            given = words.get("args", c.args[1] if len(c.args) > 1 and isinstance(c.args[1], ast.Tuple) else None)
            if isinstance(given, ast.Tuple):
                ahead = 0 if "target" in words else 1
                called = ast.Call(func=target, args=[ast.Name(id="rank", ctx=ast.Load())] * ahead + given.elts, keywords=[])
                found.append((ast.copy_location(called, c), s, 1 if at.cls else 0))
        return found

    def means(self, func, scope, at):
        """Whether a call by this name may be one of that function."""
        same = [s for s in self.functions.get(at.name, []) if s.cls is None]
        if len(same) < 2:
            return True
        if isinstance(func, ast.Name):
            if at.name in scope.file.imports:
                return scope.file.imports[at.name][0].rsplit(".", 1)[-1] == at.file.stem
            if any(s.file is scope.file for s in same):
                return at.file is scope.file
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and any(s.file.stem == func.value.id for s in same):
            return at.file.stem == func.value.id
        return True

    def bound(self, call, scope, at, name, ahead):
        params = at.params()
        for k in call.keywords:
            if k.arg == name:
                return "value", k.value, scope
        if name in params:
            n = params.index(name) - ahead
            for i, a in enumerate(call.args):
                if isinstance(a, ast.Starred) and i <= n:
                    return "known", {"name": text(a)}
            if 0 <= n < len(call.args):
                return "value", call.args[n], scope
        for k in call.keywords:
            if k.arg is None:
                value = self.project(self.value(k.value, scope, (("kw", id(k)),)), name, (("kw", id(k)),), 0)
                if value is not None and "name" not in value:
                    return "known", value
                if value is None or value.get("name") != "absent":
                    return "known", {"name": "**" + text(k.value)}
        return None

    def member(self, base, attr, node, scope, active, depth, default):
        """An attribute, or a key, of what an expression is."""
        of = self.value(base, scope, active, depth)
        if isinstance(base, ast.Name) and base.id == "self" and scope.cls:
            of = {"instance": scope.cls}
        found = self.project(of, attr, active, depth, text(base))
        if found is None:
            return None
        if "name" in found and len(found) == 1:
            found = {"name": text(node)}
            if CONFIG.search(last(base) or "") or isinstance(base, ast.Call) and last(base.func) in PASSED:
                if not (of and "name" in of and of["name"].split(".")[0] in ("wandb",)):
                    found = self.setting(attr, active, depth, text(base)) or found
            elif base is not None and last(base):
                found = alternatives(self.stored(attr, active, depth, text(base)), attr) if self.stored(attr, active, depth, text(base)) else found
        if default is not None and "file" in found:
            value, known = constant(default)
            if known:
                found = dict(found, default=value)
        return found

    def project(self, of, key, active, depth, base=""):
        if of is None:
            return None
        if "any" in of:
            found = [self.project(v, key, active, depth, base) for v in of["any"]]
            said = [v for v in found if v is None or len(v) > 1 or "name" not in v]
            return alternatives(said if any(v is not None for v in said) else found, key)
        if "set" in of and key == "value":
            return of
        if "namespace" in of:
            return self.setting(key, active, depth, base) or {"name": key}
        if "file" in of:
            found = dict(of, path=of["path"] + [key])
            stored = self.stored(key, active, depth, base)
            return alternatives([found] + stored, key) if stored else found
        if "hydra" in of:
            return {"hydra": of["hydra"] + [key]}
        if "class" in of or "instance" in of:
            return self.attribute(of.get("class") or of.get("instance"), key, active, depth)
        if "literal" in of:
            return self.within(of["literal"], key, active, depth, base)
        return {"name": key}

    def within(self, literal, key, active, depth, base):
        node, scope = literal
        stored = self.stored(key, active, depth, base)
        if isinstance(node, ast.Call):
            for k in node.keywords:
                if k.arg == key:
                    return alternatives([self.value(k.value, scope, active, depth)] + stored, key)
        elif isinstance(node, ast.Dict):
            for k, v in zip(node.keys, node.values):
                if k is None:
                    inner = self.project(self.value(v, scope, active, depth), key, active, depth)
                    if inner is not None and inner.get("name") not in ("absent", key):
                        return inner
                elif constant(k) == (key, True):
                    return alternatives([self.value(v, scope, active, depth)] + stored, key)
        return alternatives(stored, key) if stored else {"name": "absent"}

    def stored(self, key, active, depth, base):
        """What is assigned to this key elsewhere: of the same name, or of any configuration."""
        found = []
        end = base.rsplit(".", 1)[-1]
        for value, scope, owner in self.stores.get(key, []):
            mark = ("store", id(value))
            if owner == "self" or mark in active or not (owner.rsplit(".", 1)[-1] == end or CONFIG.search(end) and CONFIG.search(owner)):
                continue
            found.append(self.value(value, scope, active + (mark,), depth))
        return [f for f in found if f is not None]

    def setting(self, dest, active, depth, base):
        ids = self.by_dest.get(dest, [])
        found = [{"set": n} for n in ids]
        for value, scope, owner in self.stores.get(dest, []):
            mark = ("store", id(value))
            if owner == "self" or mark in active or not CONFIG.search(owner):
                continue
            found.append(self.value(value, scope, active + (mark,), depth))
        return alternatives(found, dest) if found else None

    def attribute(self, cls, key, active, depth):
        found = []
        for c in self.classes.get(cls, []):
            if (cls, key) in self.fields:
                found.append({"set": self.fields[cls, key]})
            elif key in c["fields"] and c["fields"][key][1] is not None and text(c["fields"][key][1]) in self.classes:
                found.append({"instance": text(c["fields"][key][1])})
            elif key in c["fields"] and c["fields"][key][0] is not None:
                found.append(self.value(c["fields"][key][0], c["scope"], active, depth))
            for base in c["bases"]:
                if base in self.classes and base != cls:
                    inner = self.attribute(base, key, active + ("base",), depth + 1) if depth < DEPTH else None
                    if inner is not None and "name" not in inner:
                        found.append(inner)
        for value, scope, owner in self.stores.get(key, []):
            if owner == "self" and scope.cls == cls or owner != "self" and scope.cls != cls and (cls, key) in self.fields and CONFIG.search(owner):
                found.append(self.value(value, scope, active, depth))
        for name, dest in self.taken.get(cls, []):
            if dest is None:
                found.append(self.setting(key, active, depth, name))
        return alternatives(found, key) if found else {"name": key}

    def part(self, node, n, scope, active, depth):
        """The n-th of what an expression unpacks to."""
        of = self.value(node, scope, active, depth)
        if of is None:
            return None
        if "namespace" in of:
            return of
        return self.nth(of, n, active, depth, text(node))

    def nth(self, of, n, active, depth, name):
        if "any" in of:
            return alternatives([self.nth(v, n, active, depth, name) for v in of["any"]], name)
        if "namespace" in of:
            return of
        if "literal" in of:
            node, scope = of["literal"]
            if isinstance(node, (ast.Tuple, ast.List)) and n < len(node.elts):
                return self.value(node.elts[n], scope, active, depth)
        return {"name": name}

    def item(self, node, scope, active, depth):
        key, known = constant(index(node))
        if known and isinstance(key, str):
            return self.member(node.value, key, node, scope, active, depth, None)
        if known and isinstance(key, int):
            return self.part(node.value, key, scope, active, depth)
        return {"name": text(node)}

    def called(self, node, scope, active, depth):
        name, full, args = last(node.func), dotted(node.func), node.args
        if isinstance(node.func, ast.Name):
            name = self.real(name, scope)
        words = {k.arg: k.value for k in node.keywords}
        if name in ("parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_intermixed_args", "parse_args_and_config", "parse_sys_args") :
            if full.split(".")[0] in self.classes or name != "parse_args" or isinstance(node.func, ast.Attribute):
                return {"namespace": True}
        if name in ("cli", "parse") and full.split(".")[0] in ("tyro", "simple_parsing", "pyrallis", "draccus", "chz"):
            return {"namespace": True}
        if name in ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_string", "DEFINE_float") or name == "add_argument":
            return {"namespace": True}
        if name == "value" and not args:
            return self.value(node.func.value, scope, active, depth)
        if full in LOADS and args:
            of = self.value(args[0], scope, active, depth)
            return {"file": plain(opened(of)), "path": []}
        if name in ("open", "read", "read_text", "load_config_file") or full in ("os.path.join", "osp.join"):
            inner = args[0] if args else node.func.value if isinstance(node.func, ast.Attribute) else None
            if full in ("os.path.join", "osp.join"):
                return {"op": "join", "of": [plain(self.value(a, scope, active, depth)) for a in args]}
            if inner is not None:
                return {"op": "open", "of": [plain(self.value(inner, scope, active, depth))]}
        if name == "get" and args and isinstance(node.func, ast.Attribute):
            key, known = constant(args[0])
            if known and isinstance(key, str):
                return self.member(node.func.value, key, node, scope, active, depth, args[1] if len(args) > 1 else None)
        if name == "getattr" and len(args) > 1:
            key, known = constant(args[1])
            if known and isinstance(key, str):
                return self.member(args[0], key, node, scope, active, depth, None)
        if name == "dict" and not args and words:
            return {"literal": (node, scope)}
        if name in PASSED and name not in self.classes:
            for inner in args[:1] or [k.value for k in node.keywords if k.arg is None][:1]:
                return self.value(inner, scope, active, depth)
        if name in self.classes and (isinstance(node.func, ast.Name) or name not in self.functions):
            return {"instance": name}
        if name in self.functions:
            found = self.result(node, name, scope, active, depth)
            if found is not None:
                return found
        if name in ("int", "float", "round", "bool", "max", "min", "ceil", "len"):
            return {"op": name, "of": [plain(self.value(a, scope, active, depth)) for a in args]}
        if name == "format" and isinstance(node.func, ast.Attribute):
            of = plain(self.value(node.func.value, scope, active, depth))
            return {"op": "format", "of": [of] + [plain(self.value(a, scope, active, depth)) for a in args]}
        return {"name": text(node)}

    def result(self, node, name, scope, active, depth):
        found = []
        for f in self.functions[name][:WIDTH]:
            if f.cls is None and not isinstance(node.func, ast.Attribute) and not self.means(node.func, scope, f):
                continue
            if ("call", id(f)) in active:
                return None
            for r in f.returns[:WIDTH]:
                found.append(self.value(r, f, active + (("call", id(f)),), depth))
        return alternatives(found, text(node)) if found else None


def is_main(node):
    return isinstance(node, ast.If) and "__name__" in text(node.test) and "__main__" in text(node.test)


def counters(test, scope):
    """What is divided in a test: the names of what counts."""
    found = []
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            found += [last(n) for n in ast.walk(node.left) if isinstance(n, (ast.Name, ast.Attribute)) and last(n)]
        elif isinstance(node, ast.Name):
            for how, what in scope.assigned.get(node.id, []):
                if how == "value":
                    for m in ast.walk(what):
                        if isinstance(m, ast.BinOp) and isinstance(m.op, ast.Mod):
                            found += [last(n) for n in ast.walk(m.left) if isinstance(n, (ast.Name, ast.Attribute)) and last(n)]
    return sorted(set(found))


def opened(of):
    if of and of.get("op") == "open":
        return of["of"][0]
    if of and "any" in of:
        return {"any": [opened(v) for v in of["any"]]}
    return of


def plain(value):
    """A value as it can be told."""
    if value is None:
        return {"name": "?"}
    if "any" in value:
        return {"any": [plain(v) for v in value["any"]]}
    for kind in ("literal", "instance", "class", "namespace"):
        if kind in value:
            return {"name": kind}
    return value


def alternatives(values, name):
    """Several values of which any may be; None are those that only repeat themselves."""
    flat = []
    for v in values:
        for one in (v["any"] if v is not None and "any" in v else [v]):
            if one is not None and one not in flat:
                flat.append(one)
    if not flat:
        return {"name": name} if not values else None
    return flat[0] if len(flat) == 1 else {"any": flat[:WIDTH]}


# -- the settings that a job takes

class Job(Program):
    def __init__(self, sources):
        self.inside, self.stepping = {}, {}
        self.params, self.configured, self.taken, self.hydra = {}, {}, {}, None
        super().__init__(sources)
        self.targets = {}
        for file in self.files:
            for node in ast.walk(file.tree):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    target = text(node.targets[0] if isinstance(node, ast.Assign) else node.target)
                    for inner in ast.walk(node.value):
                        if isinstance(inner, (ast.Call, ast.BinOp)):
                            self.targets.setdefault(id(inner), target)
        for scope in self.live:
            for call in scope.calls:
                self.take(call, scope)
            self.decorated(scope)
        for name, all_of in self.classes.items():
            if any("Tap" in c["bases"] for c in all_of):
                self.take_class(name, "tap", "")
        for call, _ in self.calls.get("set_defaults", []):
            for k in call.keywords:
                for n in self.by_dest.get(k.arg, []):
                    self.settings[n].update(literal(k.value))

    def add(self, node, scope, kind, options, dest, **more):
        known = {"id": len(self.settings), "kind": kind, "options": options, "dest": dest, "file": scope.file.path, "line": node.lineno, "read": False}
        known.update(more)
        for n in self.by_dest.get(dest, []):
            old = self.settings[n]
            if old["file"] == known["file"] and old["line"] == known["line"]:
                return n
        self.settings.append(known)
        self.by_dest.setdefault(dest, []).append(known["id"])
        return known["id"]

    def take(self, call, scope):
        name, words = last(call.func), {k.arg: k.value for k in call.keywords}
        first, known = constant(call.args[0]) if call.args else (None, False)
        if name == "add_argument" and known and isinstance(first, str) and first.startswith("-"):
            options = [v for v, known in map(constant, call.args) if known and isinstance(v, str)]
            long = [o for o in options if o.startswith("--")] or options
            dest = constant(words["dest"])[0] if "dest" in words else long[0].lstrip("-").replace("-", "_")
            more = {"type": text(words["type"]) if "type" in words else "", "action": str(constant(words["action"])[0] or text(words["action"])) if "action" in words else "",
                    "nargs": text(words["nargs"]) if "nargs" in words else "", "help": described(words.get("help")), "parser": text(call.func.value)}
            more.update(literal(words.get("default")))
            if more["action"] == "store_true" and "default" not in words:
                more.update(default=False, known=True)
            if "required" in words and constant(words["required"])[0] is True:
                more.update(default=None, known=False)
            self.add(call, scope, "argparse", options, dest, **more)
        elif name.startswith("DEFINE_") and known and isinstance(first, str) and len(call.args) + len(words) >= 2:
            default = call.args[1] if len(call.args) > 1 else words.get("default")
            kind = {"DEFINE_integer": "int", "DEFINE_bool": "bool", "DEFINE_boolean": "bool", "DEFINE_float": "float"}.get(name, "str")
            n = self.add(call, scope, "absl", ["--" + first], first, type=kind, help=described(call.args[2] if len(call.args) > 2 else words.get("help")), **literal(default))
            target = self.targets.get(id(call))
            if target and "." not in target:
                scope.assigned[target] = [("set", n)]
        elif name in ("HfArgumentParser", "TrlParser"):
            for inner in (call.args[0].elts if call.args and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args[:1]):
                self.take_class(last(inner), "hf", "")
        elif name in ("cli", "parse", "add_arguments", "wrap") and (call.args or words):
            full = dotted(call.func).split(".")[0]
            kind = {"tyro": "tyro", "pyrallis": "pyrallis", "draccus": "pyrallis"}.get(full, "simple" if full == "simple_parsing" or name == "add_arguments" else "")
            inner = words.get("config_class", call.args[0] if call.args else None)
            if kind and inner is not None and last(inner) in self.classes:
                self.take_class(last(inner), kind, "")
            elif kind == "tyro" and inner is not None and last(inner) in self.functions:
                self.take_function(self.functions[last(inner)][0], "tyro")
        elif name == "Fire" and call.args and last(call.args[0]) in self.functions:
            self.take_function(self.functions[last(call.args[0])][0], "fire")
        elif name == "run" and dotted(call.func) == "typer.run" and call.args and last(call.args[0]) in self.functions:
            self.take_function(self.functions[last(call.args[0])][0], "typer")

    def take_class(self, name, kind, prefix, depth=0):
        for c in self.classes.get(name, [])[:1]:
            for base in c["bases"]:
                if base in self.classes and depth < 4:
                    self.take_class(base, kind, prefix, depth + 1)
            for field, (value, annotation, line) in c["fields"].items():
                if annotation is None and kind != "hf" or (name, field) in self.fields:
                    continue
                of = text(annotation) if annotation is not None else ""
                if of in self.classes and depth < 4:
                    self.take_class(of, kind, prefix + field + ".", depth + 1)
                    continue
                help_text = None
                if isinstance(value, ast.Call) and last(value.func) in ("field", "Field", "arg"):
                    words = {k.arg: k.value for k in value.keywords}
                    if "metadata" in words and isinstance(words["metadata"], ast.Dict):
                        for k, v in zip(words["metadata"].keys, words["metadata"].values):
                            if constant(k)[0] == "help":
                                help_text = v
                    help_text = words.get("help", help_text)
                    value = words.get("default", value.args[0] if value.args else None)
                option = "--" + prefix + field
                node = c["node"]
                at = ast.copy_location(ast.Pass(), node)
                at.lineno = line
                scope = c["scope"]
                options = [option.replace("_", "-"), option] if kind == "tyro" else [option]
                given = literal(value) if value is not None else {"default": None, "known": False}
                self.fields[name, field] = self.add(at, scope, kind, options, field, type=of, help=described(help_text), **given)

    def take_function(self, scope, kind):
        for p in scope.params() + [a.arg for a in scope.node.args.kwonlyargs]:
            default, annotation = scope.default(p), scope.annotation(p)
            of, options = text(annotation) if annotation is not None else "", ["--" + p]
            if kind in ("typer", "tyro"):
                options = ["--" + p.replace("_", "-")]
            more = literal(default) if default is not None else {"default": None, "known": False}
            if isinstance(default, ast.Call) and last(default.func) == "Option":
                more = literal(default.args[0]) if default.args else {"default": None, "known": False}
                named = [v for v, known in map(constant, default.args[1:]) if known and isinstance(v, str)]
                options = [o for n in named for o in n.split("/")] or options
                more["help"] = described({k.arg: k.value for k in default.keywords}.get("help"))
            elif default is None and kind == "typer" and (annotation is None or "Option" not in of):
                continue  # a word, and no option
            if isinstance(more.get("default"), bool) or of == "bool":
                of = "bool"
            elif isinstance(more.get("default"), int) and not of:
                of = "int"
            n = self.add(annotation or default or scope.node, scope, kind, options, p, type=of, param=True, **more)
            self.params.setdefault(id(scope), []).append({"param": p, "id": n})

    def decorated(self, scope):
        for d in getattr(scope.node, "decorator_list", []):
            call = d if isinstance(d, ast.Call) else None
            full = dotted(call.func if call else d)
            if call and last(call.func) == "option" and call.args and full.split(".")[0] in ("click", "option", "cli"):
                words = {k.arg: k.value for k in call.keywords}
                named = [v for v, known in map(constant, call.args) if known and isinstance(v, str)]
                options = [o for n in named for o in n.split("/") if o.startswith("-")]
                if not options:
                    continue
                plainly = [n for n in named if not n.startswith("-")]
                dest = plainly[0] if plainly else sorted(options, key=lambda o: (not o.startswith("--"), options.index(o)))[0].lstrip("-").replace("-", "_")
                of = text(words["type"]) if "type" in words else ""
                more = literal(words.get("default"))
                if not of and type(more["default"]) is int:
                    of = "int"
                if "is_flag" in words or "/" in "".join(named) or isinstance(more["default"], bool):
                    of = "bool"
                n = self.add(d, scope, "click", options, dest.lower(), type=of, param=True, help=described(words.get("help")), flag="is_flag" in words or "/" in "".join(named), **more)
                self.params.setdefault(id(scope), []).append({"param": dest.lower(), "id": n})
            elif full in ("hydra.main", "hydra_runner"):
                words = {k.arg: k.value for k in call.keywords} if call else {}
                self.configured[scope.node] = {"hydra": []}
                self.hydra = {"file": scope.file.path, "folder": constant(words.get("config_path"))[0], "name": constant(words.get("config_name"))[0]}
            elif full in ("pyrallis.wrap", "draccus.wrap", "parser.wrap"):
                first = [p for p in scope.params() if p not in ("self", "cls")][:1]
                annotation = scope.annotation(first[0]) if first else None
                if annotation is not None and text(annotation) in self.classes:
                    self.take_class(text(annotation), "pyrallis", "")
                    self.configured[scope.node] = {"instance": text(annotation)}
            elif full.endswith(".command") and any(m[0] == "typer" or m[1] == "typer" for m in scope.file.imports.values()):
                self.take_function(scope, "typer")

    # -- what they say of training

    def reads(self):
        names = set()
        for scope in self.live:
            stack = list(ast.iter_child_nodes(scope.node))
            while stack:
                node = stack.pop()
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    names.add(node.attr)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    names.add("=" + node.id)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
                    names.add("'" + node.value)
                elif isinstance(node, ast.Call) and any(k.arg is None for k in node.keywords) and "vars" in text(node):
                    names.add("**")
                stack.extend(ast.iter_child_nodes(node))
        for s in self.settings:
            s["read"] = s["dest"] in names or "'" + s["dest"] in names and s["kind"] != "argparse" or bool(s.get("param")) and "=" + s["dest"] in names

    def steps_in(self, nodes, scope, depth=0, seen=()):
        """Whether an optimizer makes a step in some statements, or in what they call."""
        return self.calls_in(nodes, self.is_step, depth, seen)

    def calls_of(self, node):
        """All calls inside a node, found once."""
        if id(node) not in self.inside:
            self.inside[id(node)] = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        return self.inside[id(node)]

    def steps_under(self, nodes, depth=0, seen=()):
        """Where the optimizer's steps stand that some statements make, or call."""
        found = []
        for node in nodes:
            for inner in self.calls_of(node):
                if self.is_step(inner):
                    found.append(inner.lineno * 1000 + inner.col_offset)
                    continue
                name = last(inner.func)
                callees = self.functions.get(name, []) if name not in ("step", "__init__", "train", "eval", "zero_grad") else []
                if not callees and re.search(r"scaler", name):
                    callees = self.functions.get("__call__", [])
                for f in callees[:4]:
                    if depth < 3 and id(f) not in seen:
                        found += self.steps_under(f.node.body, depth + 1, seen + (id(f),))
        return sorted(set(found))

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
        return [{"id": c.lineno * 1000 + c.col_offset, "file": s.file.path, "line": c.lineno, "text": text(c.func)} for c, s in self.calls.get("step", []) if self.is_step(c)]

    def rates(self):
        """What learning rates are computed from."""
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
        return [{"file": s.file.path, "line": node.lineno, "value": plain(self.value(node, s))} for node, s in found if any(isinstance(n, ast.BinOp) for n in ast.walk(node)) or isinstance(node, ast.Name)]

    def bounds(self):
        """Which settings a counter is compared with, or counts up to."""
        found = []
        for scope in self.live:
            for node in ast.walk(scope.node):
                if isinstance(node, (ast.While, ast.If)):
                    for c in ast.walk(node.test):
                        if isinstance(c, ast.Compare) and len(c.comparators) == 1:
                            ends = isinstance(node, ast.While) or any(isinstance(n, (ast.Break, ast.Return)) or isinstance(n, ast.Call) and last(n.func) in ("exit", "_exit") for b in node.body for n in ast.walk(b))
                            for a, b in ((c.left, c.comparators[0]), (c.comparators[0], c.left)):
                                if ends and last(a):
                                    found.append({"counter": last(a), "file": scope.file.path, "line": node.lineno, "value": plain(self.value(b, scope))})
                elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name):
                    inner = node.iter
                    if last(inner.func) in ("tqdm", "trange") and inner.args and isinstance(inner.args[0], ast.Call):
                        inner = inner.args[0]
                    if last(inner.func) in ("range", "trange") and inner.args:
                        found.append({"counter": node.target.id, "file": scope.file.path, "line": node.lineno, "value": plain(self.value(inner.args[min(1, len(inner.args) - 1)], scope))})
        return [b for b in found if "set" in b["value"] or "any" in b["value"] or "file" in b["value"] or "hydra" in b["value"]]

    def asserts(self):
        return [{"file": s.file.path, "line": n.lineno, "value": plain(self.value(n.test, s))} for s in self.live if not isinstance(s.node, ast.Module) for n in ast.walk(s.node)
                if isinstance(n, ast.Assert) and any(isinstance(m, ast.Mod) for m in ast.walk(n.test))] + [
                {"file": s.file.path, "line": n.lineno, "value": plain(self.value(n.test, s))} for s in self.live if isinstance(s.node, ast.Module) for n in s.node.body
                if isinstance(n, ast.Assert) and any(isinstance(m, ast.Mod) for m in ast.walk(n.test))]

    def backward_in(self, nodes, depth=0, seen=()):
        return self.calls_in(nodes, lambda call: last(call.func) in ("backward", "manual_backward"), depth, seen)

    def calls_in(self, nodes, want, depth, seen):
        for node in nodes:
            for inner in self.calls_of(node):
                if want(inner):
                    return True
                name = last(inner.func)
                found = self.functions.get(name, []) if name not in ("step", "__init__", "train", "eval", "zero_grad") else []
                if not found and re.search(r"scaler", name):
                    found = self.functions.get("__call__", [])
                for f in found[:4]:
                    if depth < 3 and id(f) not in seen and self.calls_in(f.node.body, want, depth + 1, seen + (id(f),)):
                        return True
        return False

    def blocks(self, body):
        yield body
        for s in body:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(s, name, None)
                if isinstance(inner, list) and inner:
                    for b in self.blocks(inner):
                        yield b
            for h in getattr(s, "handlers", []):
                for b in self.blocks(h.body):
                    yield b

    def gates(self):
        """What decides when an optimizer makes its step."""
        found, self.conditions = [], []
        for scope in self.live:
            body = scope.node.body if isinstance(scope.node.body, list) else []
            for block in self.blocks(body):
                for n, s in enumerate(block):
                    if isinstance(s, ast.If) and not is_main(s):
                        under = self.steps_under(s.body + s.orelse)
                        if isinstance(s.body[-1], (ast.Continue, ast.Return)):
                            under += self.steps_under(block[n + 1:])
                        if under:
                            self.conditions.append({"value": plain(self.value(s.test, scope)), "covers": under})
                    where = {"file": scope.file.path, "line": getattr(s, "lineno", 0), "text": text(getattr(s, "test", None) or getattr(s, "iter", s))}
                    if isinstance(s, ast.If) and not is_main(s) and self.interesting(s.test):
                        ends = isinstance(s.body[-1], (ast.Continue, ast.Return))
                        if self.steps_in(s.body, scope) and not self.steps_in(s.orelse, scope) or ends and self.steps_in(block[n + 1:], scope):
                            found.append(dict(where, kind="if", value=plain(self.value(s.test, scope)), counters=counters(s.test, scope)))
                    elif isinstance(s, ast.For) and isinstance(s.iter, ast.Call) and last(s.iter.func) in ("range", "trange", "tqdm"):
                        counted = s.iter.args[0] if s.iter.args else None
                        if isinstance(counted, ast.Call) and last(counted.func) == "range":
                            counted = counted.args[0] if counted.args else None
                        if counted is None or len(s.iter.args) > 1 and last(s.iter.func) == "range" and len(s.iter.args) > 1:
                            continue
                        if self.backward_in(s.body) and not self.steps_in(s.body, scope) and self.steps_in(block[n + 1:], scope):
                            found.append(dict(where, kind="range", value=plain(self.value(counted, scope)), covers=self.steps_under(block[n + 1:])))
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
                for node in ast.walk(scope.node):
                    if isinstance(node, ast.Dict):
                        values += [(v, scope) for k, v in zip(node.keys, node.values) if k is not None and constant(k)[0] == key]
            for value, scope in values:
                found.append({"kind": "framework", "file": scope.file.path, "line": value.lineno, "text": "deepspeed", "call": "deepspeed.initialize", "local": False,
                              "value": plain(self.value(value, scope)), "accumulates": True})
        return found

    def interesting(self, test):
        return any(isinstance(n, (ast.Name, ast.Attribute, ast.Mod, ast.Compare)) for n in ast.walk(test))

    def losses(self):
        """By what a loss is divided, or multiplied."""
        found = []
        for scope in self.live:
            for left, right, node in scope.divisions:
                if re.search(r"loss|criterion|cost|nll|elbo|objective|energy", text(left) + " " + self.targets.get(id(node), ""), re.I) and not re.search(r"\blen\(|steps|total", text(left)):
                    value = plain(self.value(right, scope))
                    op = OPERATORS.get(type(node.op), "?")
                    if "const" not in value:
                        found.append({"file": scope.file.path, "line": node.lineno, "op": op, "value": value})
        return found

    def loaders(self):
        """Where batches are made."""
        found = []
        for scope in self.live:
            for call in scope.calls:
                name, words = last(call.func), {k.arg: k.value for k in call.keywords}
                stars = [k.value for k in call.keywords if k.arg is None]
                item = {"kind": name, "file": scope.file.path, "line": call.lineno, "target": self.targets.get(id(call), ""), "function": scope.name + " " + (scope.cls or ""),
                        "data": " ".join(text(a) for a in call.args[:1]) or text(words["dataset"]) if call.args or "dataset" in words else "",
                        "sampler": text(words["sampler"]) if "sampler" in words else "", "shuffle": constant(words["shuffle"])[0] if "shuffle" in words else None,
                        "role": "", "local": name in self.classes or name in self.functions}
                local = name in self.classes
                if name.endswith("DataLoader") and not local or name in ("BucketIterator", "MultiEpochsDataLoader") or name == "splits" and "Iterator" in text(call.func):
                    batch = words.get("batch_size", call.args[1] if len(call.args) > 1 and not isinstance(call.args[1], ast.Starred) else None)
                    item["workers"] = plain(self.given(words.get("num_workers"), stars, "num_workers", scope))
                    if "batch_sampler" in words and constant(words["batch_sampler"]) != (None, True):
                        item["batch"] = plain(self.sampled(words["batch_sampler"], scope))
                    else:
                        item["batch"] = plain(self.given(batch, stars, "batch_size", scope))
                        if batch is None and item["batch"].get("name") == "absent":
                            item["batch"] = {"const": 1}
                    if item["shuffle"] is None and stars:
                        shuffled = self.given(None, stars, "shuffle", scope)
                        item["shuffle"] = shuffled.get("const") if shuffled else None
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
                elif name == "randint":
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
                                found.append({"kind": "slice", "file": scope.file.path, "line": node.lineno, "target": self.targets.get(id(node), ""), "function": scope.name, "data": text(node.value),
                                              "sampler": "", "shuffle": None, "role": "", "local": False, "batch": plain(self.value(side, scope)), "workers": {"name": "absent"}})
            for loop in scope.fors:
                if isinstance(loop.iter, ast.Call) and last(loop.iter.func) == "range" and len(loop.iter.args) == 3 and self.backward_in(loop.body):
                    found.append({"kind": "range", "file": scope.file.path, "line": loop.lineno, "target": "train", "function": scope.name, "data": "", "sampler": "", "shuffle": None, "role": "train",
                                  "local": False, "batch": plain(self.value(loop.iter.args[2], scope)), "workers": {"name": "absent"}})
        return found

    def makes(self, cls, param):
        """Whether a class makes batches of as many samples as a parameter says."""
        mine = {param} | {attr for attr, stores in self.stores.items() for value, scope, owner in stores if owner == "self" and scope.cls == cls and last(value) == param}
        for c in self.classes[cls]:
            for node in ast.walk(c["node"]):
                if isinstance(node, ast.Call) and last(node.func) in ("view", "reshape", "randint", "randperm") and any(last(a) in mine for a in node.args[:1]):
                    return True
                if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and last(node.left.func) == "len" and any(last(b) in mine for b in node.comparators):
                    return True
                if isinstance(node, ast.Subscript) and isinstance(index(node), ast.Slice) and any(
                        isinstance(n, ast.BinOp) and (last(n.left) in mine or last(n.right) in mine) for b in (index(node).lower, index(node).upper) if b is not None for n in ast.walk(b)) and BATCH.match(param):
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
                if any(isinstance(n, ast.Call) and last(n.func) in CHECKPOINTS for b in body for n in ast.walk(b)):
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
                where = {"file": scope.file.path, "line": call.lineno}
                if full.endswith("torch.save") and len(call.args) + ("f" in words) >= 2 or name == "save_on_master" and len(call.args) >= 2:
                    path = call.args[1] if len(call.args) > 1 else words["f"]
                    saved.append(dict(where, path=plain(self.value(path, scope)), keys=self.keys(call.args[0], scope)))
                elif full in ("torch.load",) and call.args:
                    loaded.append(dict(where, call=full, value=plain(self.value(call.args[0], scope))))
                elif name in ("load_state",) and call.args:
                    loaded.append(dict(where, call=name, value=plain(self.value(call.args[0], scope))))
                elif name == "save_state" and call.args:
                    saved.append(dict(where, path=plain(self.value(call.args[0], scope)), keys=["optimizer", "state"]))
                elif name in ("train", "fit"):
                    for k in ("resume_from_checkpoint", "ckpt_path"):
                        if k in words:
                            loaded.append(dict(where, call=name + "(" + k + ")", value=plain(self.value(words[k], scope))))
                elif name in ("makedirs", "mkdir") and (call.args or isinstance(call.func, ast.Attribute)):
                    if constant(words.get("exist_ok", ast.Constant(value=False)))[0] is not True and not self.guarded(call, scope):
                        path = call.args[0] if call.args and full.startswith("os.") else call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
                        made.append(dict(where, value=plain(self.value(path, scope))))
        restored = any(last(c.func) == "load_state_dict" and re.search(r"opt", text(c.func), re.I) for calls in self.calls.values() for c, _ in calls)
        return saved, loaded, made, restored

    def guarded(self, call, scope):
        for node in ast.walk(scope.node):
            if isinstance(node, (ast.If, ast.Try)) and any(inner is call for inner in ast.walk(node)):
                if isinstance(node, ast.Try) or re.search(r"exists|isdir", text(node.test)):
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
        return found

    def unlike(self):
        """What makes a batch more than the sum of its samples: statistics over it, or a loss over its pairs."""
        found = []
        norm = re.compile(r"^(Sync)?BatchNorm(\d[dD])?$|^batch_norm$|^convert_sync_batchnorm$")
        pairs = re.compile(r"InfoNCE|NTXent|NT_Xent|SupCon|contrastive_?loss|ContrastiveLoss|ClipLoss|clip_loss|TripletLoss|triplet_loss|MultipleNegatives|BiEncoderNllLoss|in_batch_neg|inbatch", re.I)
        for scope in self.live:
            for call in scope.calls:
                name, full = last(call.func), dotted(call.func)
                root = scope.file.imports.get(full.split(".")[0], ("", ""))
                torchvision = "torchvision.models" in full or root[0].startswith("torchvision.models") or root[0] == "torchvision" and root[1] == "models"
                where = {"file": scope.file.path, "line": call.lineno, "text": text(call.func)[:60]}
                if norm.match(name):
                    found.append(dict(where, kind="norm"))
                elif torchvision and not re.match(r"vit_|swin|convnext|alexnet|vgg\d+$", name) or name == "create_model" and root[0].startswith("timm"):
                    found.append(dict(where, kind="models"))
                elif pairs.search(name):
                    found.append(dict(where, kind="pairs"))
                elif name in ("cross_entropy", "CrossEntropyLoss", "criterion", "nll_loss", "loss_fct") and len(call.args) > 1:
                    target = self.value(call.args[1], scope)
                    if any("arange" in str(v.get("name", "")) for v in (target.get("any", [target]) if target else [])):
                        found.append(dict(where, kind="pairs"))
        return found[:20]

    def facts(self):
        self.reads()
        saved, loaded, made, restored = self.saves()
        split = [{"file": s.file.path, "line": c.lineno} for c, s in self.calls.get("Accelerator", []) + self.calls.get("DataLoaderConfiguration", [])
                 for k in c.keywords if k.arg == "split_batches" and constant(k.value)[0] is not False]
        gates = self.gates()
        return {"settings": self.settings, "loaders": self.loaders(), "gates": gates, "conditions": self.conditions, "steps": self.all_steps(), "rates": self.rates(), "bounds": self.bounds(), "asserts": self.asserts(), "losses": self.losses(), "checkpoints": self.checkpoints(), "unlike": self.unlike(),
                "saves": saved, "loads": loaded, "made": made, "restores": restored, "hydra": self.hydra, "split": split, "modules": len(self.files), "failed": self.failed,
                "namespace": next((t for c, _ in self.calls.get("parse_args", []) + self.calls.get("parse_known_args", []) for t in [self.targets.get(id(c), "")] if re.match(r"^\w+$", t)), ""),
                "backwards": [{"file": s.file.path, "line": c.lineno, "text": text(c.func.value)} for c, s in self.calls.get("backward", []) if isinstance(c.func, ast.Attribute)],
                "divided": any(last(c.func) == "backward" and re.search(r"accel|engine|fabric", text(c.func), re.I) for c, _ in self.calls.get("backward", [])),
                "parallel": bool(self.calls.get("DataParallel"))}


def described(node):
    value = constant(node)[0] if node is not None else None
    if value is None and node is not None:
        value = " ".join(str(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return str(value)[:300] if value else ""


def literal(node):
    if node is None:
        return {"default": None, "known": True}
    value, known = constant(node)
    return {"default": value if known else None, "known": known}


def main():
    sys.setrecursionlimit(5000)
    sources = json.loads(sys.stdin.buffer.read().decode("utf-8", "replace"))
    sys.stdout.write("\n" + json.dumps(Job(sources).facts()) + "\n")


main()
