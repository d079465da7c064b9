# The settings of a job: arguments, and fields of classes that are read from the command line.


class Settings(Values):
    """The settings of a job."""

    def __init__(self, sources):
        self.splits, self.courses, self.stepping, self.stepped, self.made = {}, {}, {}, {}, None
        self.params, self.configured, self.taken, self.hydra = {}, {}, {}, None
        self.rest = set()  # the names of the words that are no options
        self.overlays = []  # files that give settings, unless the command does (kind default), or whatever it gives (over)
        self.makers = {}  # the parsers to which settings are added, by the calls that make them
        self.dests = {}  # attributes of the arguments that are instances of a class
        super().__init__(sources)
        for scope in self.live:
            for call in scope.calls:
                self.take(call, scope)
            self.decorated(scope)
        for name, all_of in self.classes.items():
            if any("Tap" in c["bases"] for c in all_of):
                self.take_class(name, "tap", "")
        self.overlay()
        for call, _ in self.calls.get("set_defaults", []):
            for k in call.keywords:
                for n in self.by_dest.get(k.arg, []):
                    self.settings[n].update(literal(k.value))

    def overlay(self):
        """Finds the files that give settings: defaults of a parser, or later changes of the
        arguments."""
        for kind, node, scope, place, changed in self.replacements()[:WIDTH]:
            value, of = self.value(node, scope) if node is not None else None, None
            if kind == "whole":
                kind, value = "over", {"file": plain(opened(value)), "path": []}
            elif kind == "over":
                of = self.belonging(changed, scope)
            keys = self.keys_of(value)
            if keys is not None:
                of = [n for n in (of if of is not None else range(len(self.settings))) if self.settings[n]["dest"] in keys]
            if not (value and "namespace" in value) and of != [] and not adds_only(place):
                self.overlays.append(dict(self.located(place, scope), kind=kind, value=plain(value), of=of))
        self.unknown_defaults()
        self.memo.clear()
        self.all = 0

    def unknown_defaults(self):
        """Forgets the defaults of a parser that code which was not read is given: it may set others."""
        if any(self.is_handed(c, s) for calls in self.calls.values() for c, s in calls):
            for s in self.settings:
                s["known"] = s["known"] and s["kind"] != "argparse"

    def is_handed(self, call, scope):
        """Whether a call hands a parser to a function that is known by a variable alone, as a model's own."""
        name, root = last(call.func), call.func
        if not any(isinstance(a, ast.Name) and re.search(r"parser$", a.id) for a in call.args) or name in self.functions or name in self.classes:
            return False
        while isinstance(root, ast.Attribute):
            root = root.value
        variable = isinstance(root, ast.Name) and root.id not in scope.file.imports and (root.id in scope.assigned or scope.has(root.id))
        return variable or isinstance(root, ast.Call) and last(root.func) == "getattr"

    def replacements(self):
        """The places that may change arguments: the kind, the expression with the values, the scope, the node, and the
        namespace."""
        found = [("default", k.value, s, c, None) for c, s in self.calls.get("set_defaults", []) for k in c.keywords if k.arg is None]
        found += [("default", None, s, c, None) for name, all_of in self.classes.items() if any("Tap" in d["bases"] for d in all_of) for c, s in self.calls.get(name, []) if any(k.arg == "config_files" for k in c.keywords)]
        for name in ("parse_json_file", "parse_yaml_file"):
            found += [("whole", c.args[0], s, c, None) for c, s in self.calls.get(name, []) if c.args]
        for c, s in self.calls.get("setattr", []):
            if len(c.args) == 3 and not constant(c.args[1])[1] and self.is_namespace(c.args[0], s):
                found.append(("over", pairs_around(c, s), s, c, c.args[0]))
        for c, s in self.calls.get("update", []):
            inner = namespace_of(c.func.value) if isinstance(c.func, ast.Attribute) else None
            if inner is not None and c.args and self.is_namespace(inner, s):
                found.append(("over", c.args[0], s, c, inner))
        for target, s in self.indexed:
            inner = namespace_of(target.value)
            if inner is not None and self.is_namespace(inner, s):
                found.append(("over", pairs_around(target, s), s, target, inner))
        return found

    def keys_of(self, value):
        """The keys of dictionaries that are written out; None for another value."""
        keys = set()
        for one in (value.get("any", [value]) if value else [None]):
            node = one["literal"][0] if one and "literal" in one else None
            if not isinstance(node, ast.Dict) or not all(k is not None and isinstance(constant(k)[0], str) for k in node.keys):
                return None
            keys |= {constant(k)[0] for k in node.keys}
        return keys

    def is_namespace(self, node, scope):
        value = self.value(node, scope)
        return bool(value) and ("namespace" in value or any("namespace" in v for v in value.get("any", [])))

    def belonging(self, node, scope):
        """The settings that a namespace may have; None if all."""
        value = self.value(node, scope) if node is not None else None
        parser = value.get("namespace") if value else None
        return [n for n in range(len(self.settings)) if self.adds(parser, n)] if parser else None

    def config_file(self, call, scope, n):
        """Notes that an argument names a file with the defaults of the others."""
        self.overlays.append({"kind": "default", "file": scope.file.path, "line": call.lineno, "value": {"file": {"set": n}, "path": []}})

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
        func = self.shortened(call.func, scope)
        name, words = last(func), {k.arg: k.value for k in call.keywords}
        first, known = constant(call.args[0]) if call.args else (None, False)
        if name in ("add_argument", "add", "add_arg") and known and isinstance(first, str) and first.startswith("-"):
            options = [v for v, known in map(constant, call.args) if known and isinstance(v, str)]
            long = [o for o in options if o.startswith("--")] or options
            dest = constant(words["dest"])[0] if "dest" in words else long[0].lstrip("-").replace("-", "_")
            more = {"type": text(words["type"]) if "type" in words else "", "action": str(constant(words["action"])[0] or text(words["action"])) if "action" in words else "",
                    "nargs": text(words["nargs"]) if "nargs" in words else "", "help": described(words.get("help"))}
            more.update(literal(words.get("default")))
            if more["action"] == "store_true" and "default" not in words:
                more.update(default=False, known=True)
            if "required" in words and constant(words["required"])[0] is True:
                more.update(default=None, known=False)
            n = self.add(call, scope, "argparse", options, dest, **more)
            self.makers[n] = self.parser(func.value, scope) if isinstance(func, ast.Attribute) else None
            if "is_config_file" in words or more["action"].endswith("ActionConfigFile"):
                self.config_file(call, scope, n)
        elif name == "add_argument" and known and isinstance(first, str) and "nargs" in words and re.search("REMAINDER|\\*", text(words["nargs"])):
            self.rest.add(first)
        elif name.startswith("DEFINE_") and known and isinstance(first, str) and len(call.args) + len(words) >= 2:
            default = call.args[1] if len(call.args) > 1 else words.get("default")
            kind = {"DEFINE_integer": "int", "DEFINE_bool": "bool", "DEFINE_boolean": "bool", "DEFINE_float": "float"}.get(name, "str")
            n = self.add(call, scope, "absl", ["--" + first], first, type=kind, help=described(call.args[2] if len(call.args) > 2 else words.get("help")), **literal(default))
            target = self.target(call)
            if target and "." not in target:
                scope.assigned[target] = [("set", n)]
        elif name in ("HfArgumentParser", "TrlParser"):
            for inner in (call.args[0].elts if call.args and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args[:1]):
                self.take_class(last(inner), "hf", "")
            if name == "TrlParser":
                self.config_file(call, scope, self.add(call, scope, "hf", ["--config"], "config", type="str", default=None, known=True))
        elif name in ("cli", "parse", "add_arguments", "wrap") and (call.args or words):
            full = dotted(call.func).split(".")[0]
            kind = {"tyro": "tyro", "pyrallis": "pyrallis", "draccus": "pyrallis"}.get(full, "simple" if full == "simple_parsing" or name == "add_arguments" else "")
            inner = words.get("config_class", call.args[0] if call.args else None)
            if kind and inner is not None and last(inner) in self.classes:
                self.take_class(last(inner), kind, "")
                dest = constant(words.get("dest", call.args[1] if len(call.args) > 1 else None))[0] if name == "add_arguments" and len(call.args) + len(words) > 1 else None
                if isinstance(dest, str):
                    self.dests[dest] = last(inner)
            elif kind == "tyro" and inner is not None and last(inner) in self.functions:
                self.take_function(self.functions[last(inner)][0], "tyro")
        elif name == "Fire" and call.args and last(call.args[0]) in self.functions:
            self.take_function(self.functions[last(call.args[0])][0], "fire")
        elif name == "Fire" and call.args and "__init__" in self.classes.get(last(call.args[0]), [{"methods": {}}])[0]["methods"]:
            self.take_function(self.classes[last(call.args[0])][0]["methods"]["__init__"], "fire")
        elif name == "Fire" and exposes(call):
            for f in [s for all_of in self.functions.values() for s in all_of if s.file is scope.file and s.cls is None and isinstance(s.parent.node, ast.Module)]:
                self.take_function(f, "fire")
        elif name in ("CLI", "auto_cli") and call.args and last(call.args[0]) in self.functions:
            self.config_file(call, scope, self.add(call, scope, "argparse", ["--config"], "config", type="str", default=None, known=True))
            self.take_function(self.functions[last(call.args[0])][0], "jsonargparse")
        elif name == "run" and dotted(call.func) == "typer.run" and call.args and last(call.args[0]) in self.functions:
            self.take_function(self.functions[last(call.args[0])][0], "typer")

    def shortened(self, func, scope):
        """The function behind a short name: parser.add_argument, after add =
        parser.add_argument."""
        if isinstance(func, ast.Name):
            given = [what for how, what in scope.assigned.get(func.id, []) if how == "value"]
            if len(given) == 1 and isinstance(given[0], ast.Attribute) and given[0].attr == "add_argument":
                return given[0]
        return func

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
        for p in [p for p in scope.params() if p != "self"] + [a.arg for a in scope.node.args.kwonlyargs]:
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


def namespace_of(node):
    """The object of obj.__dict__ and of vars(obj); None for another expression."""
    if isinstance(node, ast.Call) and last(node.func) == "vars" and node.args:
        return node.args[0]
    return node.value if isinstance(node, ast.Attribute) and node.attr == "__dict__" else None


def pairs_around(node, scope):
    """What the loop around a node takes its names and values from; None if it is not known."""
    for loop in scope.fors:
        if isinstance(loop.iter, ast.Call) and last(loop.iter.func) == "items" and isinstance(loop.iter.func, ast.Attribute) and any(n is node for n in walk(loop)):
            inner = namespace_of(loop.iter.func.value)
            return loop.iter.func.value if inner is None else inner
    return None


def adds_only(call):
    """Whether a change of a namespace is under a test that it does not have the name yet."""
    for node, above in ancestors(call):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(above, ast.If) and any(node is b for b in above.body):
            test = above.test
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn) or isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Call) and last(test.operand.func) == "hasattr":
                return True
    return False
