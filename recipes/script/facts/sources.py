# All definitions in the sources, by name. Values are expressions whose names are resolved through
# assignments, attributes and calls of local functions, in any order of execution: a name that
# cannot be resolved stays a name.
DEPTH, STEPS, ALL, WIDTH, LARGEST = 24, 600, 20000, 12, 400
CONDITIONS = 24  # the parts of the conditions that a value keeps
COMPUTED = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__}  # of two constants
NEAREST = 4  # conditions before a statement that count
UNCONDITIONAL = "literal", "instance", "class", "namespace", "merged"  # the values without conditions
LABELS = {"when", "size"}  # what belongs to the place of a value
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda
PARSES = "parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_intermixed_args", "parse_args_and_config", "parse_sys_args"
CONFIG = re.compile(r"(^|_)(args?|opts?|options?|cfg|conf|configs?|configuration|hparams?|hps?|hp|flags?|params?|settings?|namespace|parsed|training_args|model_args|data_args)$", re.I)
EVALUATION = re.compile(r"(^|[._])(val|valid|validation|test|eval|evaluation)([._]|$)", re.I)
OPTIMIZER = re.compile(r"optim|scaler|(^|[._])opts?\d*($|[._\[])|(^|[._])(o|opt_[a-z]+|engine|model_engine)($|\[)", re.I)
PASSED = {"EasyDict", "edict", "Namespace", "SimpleNamespace", "Munch", "munchify", "AttrDict", "DotMap", "Box", "create", "to_container", "structured",
          "dict", "vars", "deepcopy", "copy", "ConfigDict", "Dict", "DictConfig", "asdict", "Path", "str", "abspath", "expanduser", "Config", "CfgNode", "HParams"}
LOADS = {"yaml.load", "yaml.safe_load", "yaml.full_load", "yaml.unsafe_load", "json.load", "json.loads", "toml.load", "tomllib.load", "OmegaConf.load", "safe_load", "load_yaml"}
CHECKPOINTS = {"gradient_checkpointing_enable", "enable_gradient_checkpointing", "set_grad_checkpointing", "checkpoint", "checkpoint_sequential",
               "apply_activation_checkpointing", "_set_gradient_checkpointing", "enable_gradient_checkpoint", "checkpoint_wrapper"}
BATCH = re.compile(r"^(train_|per_device_train_|per_gpu_train_|micro_)?(batch_?size|bs|bsz)$")


READ = {ast.Name, ast.Attribute, ast.Constant}
NOTED = {ast.Assign, ast.AnnAssign, ast.AugAssign, ast.BinOp, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.If, ast.While, ast.Assert, ast.IfExp, ast.Call, ast.Return, ast.Global, ast.Subscript}


def ancestors(node):
    """Each node around a node, inmost first, after the node in it on the way."""
    above = getattr(node, "gpurun_up", None)
    while above is not None:
        yield node, above
        node, above = above, getattr(above, "gpurun_up", None)


class Scope:
    """A module or a function, with its assignments."""

    def __init__(self, node, file, parent, cls):
        self.node, self.file, self.parent, self.cls = node, file, parent, cls
        self.assigned = {}  # name: [(how, expression)]
        self.globals = set()
        self.name = getattr(node, "name", "")
        self.calls, self.ifs, self.fors, self.divisions, self.returns, self.slices = [], [], [], [], [], []
        self.tests, self.asserts = [], []

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


class Sources:
    """All definitions in the sources, by name."""

    def __init__(self, sources):
        self.files, self.scopes, self.functions, self.classes = [], [], {}, {}
        self.stores = {}  # attribute or key: [(expression, scope, text of the base)]
        self.calls = {}  # last name of what is called: [(call, scope)]
        self.settings, self.by_dest, self.fields = [], {}, {}
        self.steps = self.all = self.cuts = 0  # of one value, of all, and where a value was cut short
        self.memo = {}
        self.read = set()  # names, keys and attributes that are read somewhere
        self.named_times = collections.Counter()  # how often a name is read
        self.unpacked = set()  # the ** arguments whose values are being searched
        self.indexed = []  # what is assigned to an item whose key is not written out, and the scope
        self.idle = []  # the calls that would read a command line in code that does not run
        self.testing = set()  # the conditions that are being read
        for n, source in enumerate(sources):
            tree = source["tree"]
            if tree is None:
                continue
            file = File(source["path"], tree)
            self.files.append(file)
            mains = [s for s in tree.body if n and is_main(s)]
            tree.body = [s for s in tree.body if s not in mains]
            scope = self.collect(tree, file, None, None)
            self.idle += [(c, scope) for s in mains for c in walk(s) if isinstance(c, ast.Call) and last(c.func) in PARSES]
        self.original()
        self.reach()
        self.modules, self.subclasses, self.mine = {}, {}, {}
        for name, stores in self.stores.items():
            for store in stores:
                if store[2] == "self":
                    self.mine.setdefault((name, store[1].cls), []).append(store)
        for scope in self.scopes:
            if isinstance(scope.node, ast.Module):
                self.modules.setdefault(scope.file.stem, []).append(scope)
        for name, all_of in self.classes.items():
            for c in all_of:
                for base in set(c["bases"]):
                    self.subclasses.setdefault(base, []).append((name, c))

    def original(self):
        """Counts calls under another name as calls of the original definition."""
        self.aliases = {}
        for file in self.files:
            for name, (_, original) in file.imports.items():
                if name != original and (original in self.classes or original in self.functions):
                    self.aliases.setdefault(name, set()).add(original)
        for name, originals in self.aliases.items():
            for original in originals:
                self.calls.setdefault(original, []).extend((c, s) for c, s in self.calls.get(name, []) if self.real(name, s) == original)

    def real(self, name, scope):
        """The name under which an import of a file is defined."""
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
                self.reads_all([node.args] + [n for n in [node.returns] if n is not None])
                continue
            if isinstance(node, ast.ClassDef):
                self.declare(node, scope, file)
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for a in node.names:
                    file.imports[a.asname or a.name.split(".")[0]] = (getattr(node, "module", None) or "", a.name)
            kind = type(node)
            if kind in READ:
                self.reads(node)
            elif kind in NOTED or kind.__name__ == "NamedExpr":
                self.note(node, scope)
            inner = children(node)
            for child in inner:
                child.gpurun_up = node
            todo.extend(reversed(inner))

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
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.reads_all([s.args] + s.decorator_list)
            elif not isinstance(s, ast.ClassDef):
                self.reads_all([s])
        self.reads_all(node.decorator_list + node.bases + [k.value for k in node.keywords])

    def reads_all(self, nodes):
        for node in nodes:
            for part in walk(node):
                self.reads(part)

    def reads(self, node):
        """Records the names that a node reads."""
        kind = type(node)
        if kind is ast.Attribute:
            if isinstance(node.ctx, ast.Load):
                self.read.add(node.attr)
        elif kind is ast.Name:
            if isinstance(node.ctx, ast.Load):
                self.read.add("=" + node.id)
                self.named_times[node.id] += 1
        elif kind is ast.Constant:
            if isinstance(node.value, str) and len(node.value) < 60:
                self.read.add("'" + node.value)

    def target(self, node):
        """The target of an assignment of an expression, as a whole or as a part; empty if there is
        none."""
        above = node
        while above is not None and not isinstance(above, ast.stmt):
            node, above = above, getattr(above, "gpurun_up", None)
        if isinstance(above, (ast.Assign, ast.AnnAssign)) and node is above.value:
            return text(above.targets[0] if isinstance(above, ast.Assign) else above.target)
        return ""

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
                value.left.beside = node.value
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
            for n in walk(node.target):
                if isinstance(n, ast.Name):
                    scope.assigned.setdefault(n.id, []).append(("loop", node.iter))
        elif isinstance(node, ast.If):
            scope.ifs.append(node)
            scope.tests.append(node)
        elif isinstance(node, ast.While):
            scope.tests.append(node)
        elif isinstance(node, ast.Assert):
            scope.asserts.append(node)
        elif isinstance(node, ast.IfExp):
            scope.ifs.append(node)
        elif isinstance(node, ast.Call):
            scope.calls.append(node)
            self.calls.setdefault(last(node.func), []).append((node, scope))
            if last(node.func) == "setattr" and len(node.args) == 3 and isinstance(constant(node.args[1])[0], str):
                self.stores.setdefault(constant(node.args[1])[0], []).append((node.args[2], scope, text(node.args[0])))
            if last(node.func) == "update" and isinstance(node.func, ast.Attribute) and node.keywords and CONFIG.search((chain(node.func.value) or [""])[0]):
                for k in node.keywords:
                    if k.arg:
                        self.stores.setdefault(k.arg, []).append((k.value, scope, text(node.func.value)))
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
                elif isinstance(part, ast.Attribute):
                    item = ast.Subscript(value=value, slice=ast.Constant(value=n), ctx=ast.Load())
                    self.assign(part, ast.copy_location(item, value), scope)
        elif isinstance(target, ast.Attribute):
            self.stores.setdefault(target.attr, []).append((value, scope, text(target.value)))
        elif isinstance(target, ast.Subscript):
            key, known = constant(index(target))
            if not known:
                self.indexed.append((target, scope))
            if known and isinstance(key, str):
                self.stores.setdefault(key, []).append((value, scope, text(target.value)))

    def reach(self):
        """Omits functions and classes that no running code names."""
        used, todo = set(), [(s.node, s.file) for s in self.scopes if isinstance(s.node, ast.Module)]
        defined, places = self.definitions(), {part for f in self.files for part in re.split(r"/|\.py$", f.path)} - {""}
        seen, looked = set(), set()
        while todo:
            node, file = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            stack = list(children(node))
            while stack:
                inner = stack.pop()
                if type(inner) is ast.Constant:
                    continue
                nested = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                if nested and isinstance(node, ast.Module):
                    stack.extend(inner.decorator_list)
                    if inner.decorator_list and isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        todo.append((inner, file))  # called by what decorates it
                    continue
                name = inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else ""
                key = (file.path, isinstance(inner, ast.Name), name)
                if name and key not in looked:
                    looked.add(key)
                    for one in [name, *self.aliases.get(name, ())]:
                        used.add(one)
                        todo.extend(meant(inner, one, file, defined.get(one, []), places))
                stack.extend(children(inner))
                if type(inner) is ast.Call and exposes(inner):
                    todo.extend((n, file) for n in file.tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)))
        self.live = [s for s in self.scopes if self.alive(s, seen, used)]
        lives = {id(s) for s in self.live}
        self.idle += [(c, s) for name in PARSES for c, s in self.calls.get(name, []) if id(s) not in lives]
        self.calls = {name: [(c, s) for c, s in found if id(s) in lives] for name, found in self.calls.items()}
        self.stores = {name: [x for x in found if id(x[1]) in lives] for name, found in self.stores.items()}

    def definitions(self):
        """The functions and classes of each name, other than methods, with their files."""
        found = {}
        for name, scopes in self.functions.items():
            found.setdefault(name, []).extend((s.node, s.file) for s in scopes if s.cls is None)
        for name, all_of in self.classes.items():
            found.setdefault(name, []).extend((c["node"], c["file"]) for c in all_of)
        return found

    def alive(self, scope, seen, used):
        if isinstance(scope.node, ast.Module) or id(scope.node) in seen:
            return True
        if scope.cls is not None:
            framework = any(c.args and last(c.args[0]) == scope.cls for c, _ in self.calls.get("Fire", [])) or any(set(c["bases"]) - {"object", "ABC"} for c in self.classes.get(scope.cls, []))
            return scope.cls in used and (framework or scope.name in used or scope.name.startswith("__"))
        return scope.parent is not None and not isinstance(scope.parent.node, ast.Module) and self.alive(scope.parent, seen, used)


def exposes(call):
    """Whether a call makes commands of all functions of its file: fire.Fire() without one."""
    return last(call.func) == "Fire" and not call.args and all(k.arg != "component" for k in call.keywords)


def meant(node, name, file, known, places):
    """Those of several definitions of a name that a node in a file can mean: a name of the file's own, or of the module
    from which it is imported, hides the others, and an attribute of a library is none of them. places are the names of
    the files and their folders."""
    if isinstance(node, ast.Attribute):
        module, original = file.imports.get(node.value.id, ("", "")) if isinstance(node.value, ast.Name) else ("", "")
        reads = name in PARSES and not original and isinstance(node.value, ast.Name)  # a parser's own method
        return [] if reads or original and places.isdisjoint(module.split(".") + original.split(".")) else known
    own = [one for one in known if one[1] is file]
    module = file.imports.get(name, ("", ""))[0].rsplit(".", 1)[-1]
    return own or [one for one in known if module and one[1].stem == module] or known
