# The values of expressions: names are resolved through assignments, attributes and calls, in any
# order of execution.


class Values(Conditions):
    """The values of expressions, with their names resolved."""

    def value(self, node, scope, active=(), depth=0):
        """The value of an expression, with its names resolved."""
        top, key = not active, (id(node), id(scope))
        self.steps, self.all = (1 if top else self.steps + 1), self.all + 1
        if key in self.memo:
            return self.memo[key]
        if depth > DEPTH or self.steps > STEPS or self.all > ALL:
            self.cuts += 1
            return {"name": text(node)}
        if id(node) in active:
            self.cuts += 1
            return None
        cuts = self.cuts
        result = self.look(node, scope, active + (id(node),), depth + 1)
        if result is not None and sized(result) > LARGEST:
            result = {"name": text(node)}
        if top or cuts == self.cuts:
            self.memo[key] = result
        return result

    def once_known(self, key, find):
        """The result of find, cached, unless it was cut short because it depends on itself."""
        if key not in self.memo:
            cuts = self.cuts
            found = find()
            if cuts != self.cuts:
                return found
            self.memo[key] = found
        return self.memo[key]

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
            compute, a, b = COMPUTED.get(type(node.op)), left.get("const"), right.get("const")
            if compute and type(a) is int and type(b) is int and abs(a * b) < 1 << 31 and (b or compute is not int.__floordiv__):
                return {"const": compute(a, b)}
            return {"op": OPERATORS.get(type(node.op), "?"), "of": [plain(left), plain(right)]}
        if isinstance(node, ast.IfExp):
            if constant(node.body)[1] and constant(node.orelse)[1] and isinstance(constant(node.body)[0], bool):
                return self.value(node.test, scope, active, depth)
            found = [self.value(v, scope, active, depth) for v in (node.body, node.orelse)]
            if not isinstance(node.test, ast.Name):  # a parameter, most often, of many callers
                found = [self.conditioned(v, part, scope) for v, part in zip(found, (node.body, node.orelse))]
            return alternatives(found, text(node))
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
                later = self.assigned_later(node, at) if at is scope else 0
                return self.variable(name, at, active, depth, later)
            at = at.parent
        module, original = scope.file.imports.get(name, (None, None))
        if module is not None:
            for s in self.modules.get(module.rsplit(".", 1)[-1], []):
                if original in s.assigned:
                    return self.variable(original, s, active, depth)
        if name in self.classes:
            return {"class": name}
        return {"name": name}

    def variable(self, name, at, active, depth, later=0):
        return self.once_known(("variable", name, id(at), later), lambda: self.assigned(name, at, active, depth, later))

    def assigned_later(self, node, at):
        """How many of the last assignments of a name cannot count at a node: they are below it, and no loop is around
        both."""
        given, line, later = at.assigned.get(node.id, []), getattr(node, "lineno", 0), 0
        if len(given) < 2 or not line:
            return 0
        for how, what in reversed(given[1:]):
            if how not in ("value", "item"):
                break
            value = what[0] if how == "item" else what
            if getattr(value, "lineno", 0) <= getattr(node, "end_lineno", line) or self.loops_around(node, at) & self.loops_around(value, at):
                break
            later += 1
        return later

    def loops_around(self, node, at):
        """The loops of a function around a node, by their ids."""
        around = itertools.takewhile(lambda above: above is not at.node, (above for _, above in ancestors(node)))
        return {id(above) for above in around if isinstance(above, (ast.For, ast.AsyncFor, ast.While))}

    def assigned(self, name, at, active, depth, later=0):
        found = []
        given = at.assigned.get(name, [])
        for how, what in given[:len(given) - later]:
            if how == "value":
                found.append(self.conditioned(self.value(what, at, active, depth), what, at))
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
        if at.parent is None and found and at.file.path in self.once_known("replaced", self.replaced):
            found.append({"name": name})
        return alternatives(found, name)

    def replaced(self):
        """The files whose variables code sets by names that are not written out: by globals(), or by text that it runs."""
        runs = {s.file.path for c, s in self.calls.get("exec", []) if len(c.args) == 1 and s.parent is None}
        return runs | {s.file.path for target, s in self.indexed if isinstance(target.value, ast.Call) and last(target.value.func) == "globals"}

    def elements(self, name, node, at, active, depth):
        """The possible values of a loop's variable."""
        target = next((loop.target for loop in at.fors if loop.iter is node), None)
        if isinstance(target, ast.Tuple) and isinstance(node, ast.Call) and last(node.func) == "zip":
            place = next((i for i, part in enumerate(target.elts) if last(part) == name), len(node.args))
            return self.elements(name, node.args[place], at, active, depth) if place < len(node.args) else [{"name": name}]
        items = self.items(node, at, active, depth)
        return [self.value(item, scope, active, depth) for item, scope in items[:WIDTH] if not isinstance(item, ast.Tuple)] or [{"name": name}]

    def items(self, node, at, active, depth):
        """The elements of a list, each with its scope; [x] * 3 has those of [x]."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.items(node.left, at, active, depth) or self.items(node.right, at, active, depth)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [(item, at) for item in node.elts]
        if isinstance(node, ast.Name):
            return self.once_known(("items", id(node), id(at)), lambda: self.named_items(node, at, active, depth))
        return []

    def named_items(self, node, at, active, depth):
        found, key = [], ("items", id(at), node.id)
        if key in active or depth > DEPTH:
            self.cuts += 1
            return found
        for how, what in at.assigned.get(node.id, []):
            found += self.items(what, at, active + (key,), depth + 1) if how == "value" else []
        for call, scope, ahead in self.sites(at) if at.has(node.id) else []:
            given = self.bound(call, scope, at, node.id, ahead)
            found += self.items(given[1], given[2], active + (key,), depth + 1) if given and given[0] == "value" else []
        return found

    def argument(self, name, at, active, depth):
        """The values that the callers of a function give for one of its parameters."""
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
            self.cuts += 1
            return None
        active = active + (key,)
        found, missing, sites = [], False, self.sites(at)
        for call, scope, bound in sites:
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
        """The calls of a function: the call, its scope, and the number of parameters bound
        before."""
        return self.once_known(("sites", id(at)), lambda: list(itertools.islice(self.callers(at), WIDTH)))

    def by_keywords(self):
        """Calls with keywords of objects that are not defined here, by the first keyword."""
        found = {}
        for name, calls in self.calls.items():
            if name in self.functions or name in self.classes:
                continue
            for call, scope in calls:
                words = {k.arg for k in call.keywords if k.arg}
                if words:
                    found.setdefault(min(words), []).append((call, scope, words))
        return found

    def callers(self, at):
        name = at.name
        if at.cls and name == "__init__":
            for c, s in self.calls.get(at.cls, []):
                yield c, s, 1
            for subclass, c in self.subclasses.get(at.cls, []):
                if "__init__" in c["methods"]:
                    inner = c["methods"]["__init__"]
                    for call in inner.calls:
                        if last(call.func) == "__init__" and "super" in text(call.func):
                            yield call, inner, 1
                else:
                    for call, s in self.calls.get(subclass, []):
                        yield call, s, 1
        elif at.cls and name in ("__call__", "forward"):
            mine = set(at.params()[1:])
            known = self.once_known("keywords", self.by_keywords)
            for word in sorted(mine):
                for c, s, words in known.get(word, []):
                    if words <= mine:
                        yield c, s, 1
        elif at.cls:
            static = any(last(d) == "staticmethod" for d in at.node.decorator_list)
            for c, s in self.calls.get(name, []):
                if isinstance(c.func, ast.Attribute) and fits(c, at, 0 if static else 1):
                    yield c, s, 0 if static else 1
        else:
            for c, s in self.calls.get(name, []):
                if self.means(c.func, s, at):
                    yield c, s, 0
        for c, s in self.calls.get("spawn", []) + self.calls.get("Process", []) + self.calls.get("start_processes", []):
            words = {k.arg: k.value for k in c.keywords}
            target = words.get("target", c.args[0] if c.args else words.get("fn"))
            if target is None or last(target) != name:
                continue
            given = words.get("args", c.args[1] if len(c.args) > 1 and isinstance(c.args[1], ast.Tuple) else None)
            if isinstance(given, ast.Tuple):
                ahead = 0 if "target" in words else 1
                called = ast.Call(func=target, args=[ast.Name(id="rank", ctx=ast.Load())] * ahead + given.elts, keywords=[])
                yield ast.copy_location(called, c), s, 1 if at.cls else 0

    def means(self, func, scope, at):
        """Whether a call by this name may call that function."""
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
                if id(k) in self.unpacked:  # what it unpacks depends on itself
                    self.cuts += 1
                    return "known", {"name": "**" + text(k.value)}
                self.unpacked.add(id(k))
                value = self.project(self.value(k.value, scope, (("kw", id(k)),)), name, (("kw", id(k)),), 0)
                self.unpacked.discard(id(k))
                if value is not None and "name" not in value:
                    return "known", value
                if value is None or value.get("name") != "absent":
                    return "known", {"name": "**" + text(k.value)}
        return None

    def member(self, base, attr, node, scope, active, depth, default):
        """An attribute, or a key, of an expression's value."""
        declared = self.declared(node)
        if declared:
            return declared
        module = self.module_of(base, scope)
        if module is not None and attr in module.assigned:
            found = [self.variable(attr, module, active, depth)] + self.stored(attr, active, depth, base.id)
            return alternatives(found, attr)
        of = self.value(base, scope, active, depth)
        if isinstance(base, ast.Name) and base.id == "self" and scope.cls:
            of = {"instance": scope.cls}
        found = self.project(of, attr, active, depth, text(base))
        if found is None:
            return None
        if "name" in found and len(without(found)) == 1:
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

    def module_of(self, base, scope):
        """The job's own module that a name is: the config of "from . import config"; None for another expression."""
        if not isinstance(base, ast.Name) or base.id not in scope.file.imports:
            return None
        at = scope
        while at is not None:
            if base.id in at.assigned or at.has(base.id):
                return None
            at = at.parent
        found = self.modules.get(scope.file.imports[base.id][1].rsplit(".", 1)[-1], [])
        return found[0] if len(found) == 1 else None

    def declared(self, node):
        """The key of a configuration whose defaults are declared, and merged with a file:
        cfg.merge_from_file(args.cfg), as in yacs; None for another expression."""
        merged = self.merged()
        if not merged:
            return None
        names, declared = chain(node), self.defaults()
        for n in range(1, len(names)):
            path = tuple(names[n:])
            if path in declared and (len(path) > 1 or CONFIG.search(names[n - 1])):
                return alternatives([{"file": merged["file"], "path": list(path), "default": declared[path][0], "pairs": merged["pairs"]}] + declared[path][1:], path[-1])
        return None

    def merged(self):
        """The file that a configuration is merged with, and whether words of the command follow."""
        return self.once_known("merged", self.find_merged)

    def find_merged(self):
        self.memo["merged"] = None  # no file is named by a key of the configuration
        files = [plain(opened(self.value(c.args[0], s))) for c, s in self.calls.get("merge_from_file", [])[:WIDTH] if c.args]
        words = [last(c.args[0]) for c, _ in self.calls.get("merge_from_list", []) if c.args]
        del self.memo["merged"]
        return {"file": plain(alternatives(files, "file")), "pairs": any(w in self.rest for w in words)} if files else None

    def defaults(self):
        """The values that declare the keys of a configuration, by path: first the default, then
        those that code sets later, other than constants."""
        return self.once_known("defaults", self.find_defaults)

    def is_node(self, node):
        """Whether a call makes a part of a configuration of yacs."""
        return isinstance(node, ast.Call) and last(node.func) in ("CN", "CfgNode", "ConfigNode", "CfgNode_")

    def find_defaults(self):
        self.memo["defaults"], found, roots = {}, {}, set()
        for scope in self.live:
            roots |= {name for name, given in scope.assigned.items() for how, what in given if how == "value" and self.is_node(what)}
        roots |= {"self." + name for name, stores in self.stores.items() for what, _, owner in stores if owner == "self" and self.is_node(what)}
        for key, stores in self.stores.items():
            for value, scope, owner in stores:
                names = owner.split(".")
                if names[0] == "self":
                    names[:2] = [".".join(names[:2])]
                if names[0] in roots | {"_C"} and constant(value)[1] and all(n.isidentifier() for n in names[1:]):
                    found.setdefault(tuple(names[1:] + [key]), []).insert(0, constant(value)[0])
        for key, stores in self.stores.items():
            for value, scope, owner in stores:
                for n in range(1, owner.count(".") + 2):
                    path = tuple(owner.split(".")[n:] + [key])
                    if path in found and not constant(value)[1]:
                        one = self.value(value, scope)
                        found[path] = found[path][:1] + ([one] if one and "set" in one else [])
        del self.memo["defaults"]
        return {path: values[:1] + [v for v in values[1:] if isinstance(v, dict)] for path, values in found.items()}

    def project(self, of, key, active, depth, base=""):
        if of is None:
            return None
        if "any" in of:
            found = [self.project(v, key, active, depth, base) for v in of["any"]]
            said = [v for v in found if v is None or len(without(v)) > 1 or "name" not in v]
            return alternatives(said if any(v is not None for v in said) else found, key)
        if "set" in of and key == "value":
            return of
        if "namespace" in of:
            return {"instance": self.dests[key]} if key in self.dests else self.setting(key, active, depth, base, of["namespace"]) or {"name": key}
        if "merged" in of:
            found = [self.project(v, key, active, depth, base) for v in of["merged"]]
            found = [v for v in found if v is not None and v.get("name") != "absent"]
            return {"merged": found} if len(found) > 1 else found[0] if found else {"name": key}
        if "file" in of:
            found = dict(of, path=of["path"] + [key])
            stored = self.stored(key, active, depth, base)
            return alternatives([found] + stored, key) if stored else found
        if "hydra" in of:
            found = {"hydra": of["hydra"] + [key]}
            stored = self.stored(key, active, depth, base)
            return alternatives([found] + stored, key) if stored else found
        if "class" in of or "instance" in of:
            return self.attribute(of.get("class") or of.get("instance"), key, active, depth)
        if "literal" in of:
            return self.within(of["literal"], key, active, depth, base)
        return {"name": key}

    def within(self, literal, key, active, depth, base):
        node, scope = literal
        mark = ("within", id(node), key)
        if mark in active:
            self.cuts += 1
            return None
        active = active + (mark,)
        stored = self.stored(key, active, depth, base)
        if isinstance(node, ast.Call):
            for k in node.keywords:
                if k.arg == key:
                    return alternatives([self.value(k.value, scope, active, depth)] + stored, key)
        elif isinstance(node, ast.Dict):
            given = []  # the last one wins
            for k, v in zip(node.keys[::-1], node.values[::-1]):
                if k is None:
                    inner = self.project(self.value(v, scope, active, depth), key, active, depth)
                    if inner is not None and inner.get("name") not in ("absent", key):
                        given.append(inner)
                elif constant(k) == (key, True):
                    return alternatives(given + [self.value(v, scope, active, depth)] + stored, key)
            if given:
                return alternatives(given + stored, key)
        return alternatives(stored, key) if stored else {"name": "absent"}

    def stored(self, key, active, depth, base):
        """The values assigned to this key elsewhere: of the same name, or of any configuration."""
        if key not in self.stores:
            return []
        end = base.rsplit(".", 1)[-1]
        found = self.once_known(("stored", key, end), lambda: self.given_to(key, active, depth, lambda owner: owner.rsplit(".", 1)[-1] == end or CONFIG.search(end) and CONFIG.search(owner)))
        return found + [{"name": base + "." + key}] if found and CONFIG.search(base.split(".")[0]) and self.calls.get("merge_from_other_cfg") else found

    def given_to(self, key, active, depth, fits):
        """The values assigned to a key of an object whose name fits: where one is a part for training, not those of
        the parts for evaluation."""
        found, evaluates = [], any("train" in owner for _, _, owner in self.stores.get(key, []))
        for value, scope, owner in self.stores.get(key, []):
            if owner == "self" or not fits(owner) or evaluates and EVALUATION.search(owner):
                continue
            mark = ("store", id(value))
            if mark in active:
                self.cuts += 1
                continue
            found.append(self.conditioned(self.value(value, scope, active + (mark,), depth), value, scope))
        return [f for f in found if f is not None]

    def setting(self, dest, active, depth, base, parser=None):
        found = [{"set": n} for n in self.by_dest.get(dest, []) if self.adds(parser, n)]
        if dest in self.stores:
            found += self.once_known(("setting", dest), lambda: self.given_to(dest, active, depth, self.is_config))
        return alternatives(found, dest) if found else None

    def adds(self, parser, n):
        """Whether a parser may be the one to which a setting was added."""
        made = self.makers.get(n)
        return not parser or not made or not made.isdisjoint(parser)

    def parser(self, node, scope, active=()):
        """The calls, by their ids, that made a parser and its parents; None if they are not known."""
        key, found = (id(node), id(scope)), []
        if key in active or len(active) > DEPTH:
            return frozenset() if key in active else None
        active = active + (key,)
        if isinstance(node, ast.Name):
            while scope is not None and node.id not in scope.assigned and not scope.has(node.id):
                scope = scope.parent
            for how, what in scope.assigned.get(node.id, []) if scope is not None else []:
                found.append(self.parser(what, scope, active) if how == "value" else None)
            for call, at, ahead in self.sites(scope) if scope is not None and scope.has(node.id) else []:
                given = self.bound(call, at, scope, node.id, ahead)
                found.append(self.parser(given[1], given[2], active) if given and given[0] == "value" else None)
        elif not isinstance(node, ast.Call):
            return None
        elif last(node.func) in ("add_argument_group", "add_mutually_exclusive_group"):
            return self.parser(node.func.value, scope, active)
        elif last(node.func) == "ArgumentParser":
            parents = [p for k in node.keywords if k.arg == "parents" for p in (k.value.elts if isinstance(k.value, (ast.List, ast.Tuple)) else [None])]
            found = [frozenset([id(node)])] + [self.parser(p, scope, active) for p in parents]
        else:
            made = self.functions.get(last(node.func), [])
            found = [self.parser(r, made[0], active) for r in made[0].returns] if len(made) == 1 else []
        return frozenset().union(*found) if found and None not in found else None

    def is_config(self, owner):
        """Whether a name is that of a configuration, by its form or since a parser's result has it."""
        return bool(CONFIG.search(owner)) or owner in self.once_known("parsed", lambda: {
            name for made in PARSES + ("vars",) for call, _ in self.calls.get(made, []) for name in re.findall(r"\w+", self.target(call))})

    def attribute(self, cls, key, active, depth):
        return self.once_known(("attribute", cls, key), lambda: self.of_class(cls, key, active, depth))

    def of_class(self, cls, key, active, depth):
        found = []
        for c in self.classes.get(cls, []):
            if (cls, key) in self.fields:
                found.append({"set": self.fields[cls, key]})
            elif key in c["fields"] and c["fields"][key][1] is not None and text(c["fields"][key][1]) in self.classes:
                found.append({"instance": text(c["fields"][key][1])})
            elif key in c["fields"] and c["fields"][key][0] is not None:
                given = self.written_over(cls, c, key, active, depth) if "__init__" in c["methods"] else [self.field(call, s, c, key, active, depth) for call, s in self.calls.get(cls, [])[:WIDTH]]
                found += [g for g in given if g is not None]
                if None in given or not given:
                    default = self.value(c["fields"][key][0], c["scope"], active, depth)
                    found.append(dict(default, default=True) if default and "const" in default and self.sets_any() else default)
            for base in c["bases"]:
                if base in self.classes and base != cls:
                    if depth >= DEPTH:
                        self.cuts += 1
                    inner = self.attribute(base, key, active + ("base",), depth + 1) if depth < DEPTH else None
                    if inner is not None and "name" not in inner:
                        found.append(inner)
        stores = self.mine.get((key, cls), [])
        if (cls, key) in self.fields:
            stores = [(value, scope, owner) for value, scope, owner in self.stores.get(key, []) if owner == "self" and scope.cls == cls or owner != "self" and scope.cls != cls and CONFIG.search(owner)]
        for value, scope, owner in stores:
            found.append(self.conditioned(self.value(value, scope, active, depth), value, scope))
        for name, dest in self.taken.get(cls, []):
            if dest is None:
                found.append(self.setting(key, active, depth, name))
        return alternatives(found, key) if found else {"name": key}

    def written_over(self, cls, c, key, active, depth):
        """The values that replace an attribute of a class whose methods set attributes by names that are not written
        out, as setattr(self, k, v) does: those of the keywords of its calls, None for a call without one."""
        sets = [m for m in c["methods"].values() if any(
            last(n.func) == "setattr" and len(n.args) == 3 and last(n.args[0]) == "self" and not constant(n.args[1])[1] or text(n.func) in ("self.__dict__.update", "vars(self).update") for n in m.calls)]
        calls = [pair for name in [cls] + [n for n, _ in self.subclasses.get(cls, [])] for pair in self.calls.get(name, [])]
        if not sets:
            return []
        if any(m.name != "__init__" for m in sets):
            return [{"name": cls + "." + key}]
        found = []
        for call, scope in calls[:WIDTH]:
            given, mark = {k.arg: k.value for k in call.keywords}, ("field", id(call), key)
            if key in given and mark not in active:
                found.append(self.value(given[key], scope, active + (mark,), depth))
            else:
                found.append({"name": "**" + text(given[None])} if None in given else None)
        return found

    def sets_any(self):
        """Whether code sets attributes by names that are not written out, of an object that a function is given: any
        field of a class may be replaced."""
        return self.once_known("sets any", lambda: any(
            len(c.args) == 3 and not constant(c.args[1])[1] and isinstance(c.args[0], ast.Name) and c.args[0].id != "self" and not self.is_namespace(c.args[0], s)
            for c, s in self.calls.get("setattr", [])))

    def field(self, call, scope, c, key, active, depth):
        """The value that a call of a class of fields gives for one of them; None if it gives
        none."""
        place = list(c["fields"]).index(key)
        given = next((k.value for k in call.keywords if k.arg == key), call.args[place] if place < len(call.args) else None)
        mark = ("field", id(call), key)
        return self.value(given, scope, active + (mark,), depth) if given is not None and mark not in active else None

    def part(self, node, n, scope, active, depth):
        """The n-th part of an unpacked expression."""
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
            if isinstance(node, (ast.Tuple, ast.List)) and -len(node.elts) <= n < len(node.elts):
                return self.value(node.elts[n], scope, active, depth)
        return {"name": name}

    def item(self, node, scope, active, depth):
        key, known = constant(index(node))
        if dotted(node.value) == "os.environ":
            return {"name": text(node)}
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
        if name in PARSES:
            if full.split(".")[0] in self.classes or name != "parse_args" or isinstance(node.func, ast.Attribute):
                return {"namespace": self.parser(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None}
        if name in ("cli", "parse") and full.split(".")[0] in ("tyro", "simple_parsing", "pyrallis", "draccus", "chz"):
            return {"namespace": None}
        if name in ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_string", "DEFINE_float") or name == "add_argument":
            return {"namespace": None}
        if name == "value" and not args:
            return self.value(node.func.value, scope, active, depth)
        if (full in LOADS or name == "fromfile") and args:
            of = self.value(args[0], scope, active, depth)
            return {"file": plain(opened(of)), "path": []}
        if name in ("open", "read", "read_text", "load_config_file") or full in ("os.path.join", "osp.join"):
            inner = args[0] if args else node.func.value if isinstance(node.func, ast.Attribute) else None
            if full in ("os.path.join", "osp.join"):
                return {"op": "join", "of": [plain(self.value(a, scope, active, depth)) for a in args]}
            if inner is not None:
                return {"op": "open", "of": [plain(self.value(inner, scope, active, depth))]}
        if name == "get" and args and isinstance(node.func, ast.Attribute) and dotted(node.func.value) != "os.environ":
            key, known = constant(args[0])
            if known and isinstance(key, str):
                return self.member(node.func.value, key, node, scope, active, depth, args[1] if len(args) > 1 else None)
        if name == "getattr" and len(args) > 1:
            key, known = constant(args[1])
            if known and isinstance(key, str):
                return self.member(args[0], key, node, scope, active, depth, None)
        if name == "merge" and full.split(".")[0] == "OmegaConf":
            return {"merged": [self.value(a, scope, active, depth) for a in args]}
        if name in ("from_cli", "from_dotlist"):
            return {"literal": (ast.Dict(keys=[], values=[]), scope)}
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
        if name in ("int", "float", "round", "bool", "max", "min", "ceil", "floor", "len"):
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
                self.cuts += 1
                return None
            for r in f.returns[:WIDTH]:
                found.append(self.value(r, f, active + (("call", id(f)),), depth))
        return alternatives(found, text(node)) if found else None


def fits(call, at, ahead):
    """Whether a call gives a method all that it needs: model.train() is no call of train(self, loader)."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return True
    given = set(at.params()[ahead:][:len(call.args)]) | {k.arg for k in call.keywords}
    return all(p in given or at.default(p) is not None for p in at.params()[ahead:])


def chain(node):
    """The names in a.b["c"]; empty for another expression."""
    names = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        else:
            key, known = constant(index(node))
            if not known or not isinstance(key, str):
                return []
            names.append(key)
        node = node.value
    return [node.id] + names[::-1] if isinstance(node, ast.Name) else []


def counters(test, scope):
    """The names of counters that a test divides."""
    found = []
    for node in walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            found += [last(n) for n in walk(node.left) if isinstance(n, (ast.Name, ast.Attribute)) and last(n)]
        elif isinstance(node, ast.Name):
            for how, what in scope.assigned.get(node.id, []):
                if how == "value":
                    for m in walk(what):
                        if isinstance(m, ast.BinOp) and isinstance(m.op, ast.Mod):
                            found += [last(n) for n in walk(m.left) if isinstance(n, (ast.Name, ast.Attribute)) and last(n)]
    return sorted(set(found))


def opened(of):
    if of and of.get("op") == "open":
        return opened(of["of"][0])
    if of and "any" in of:
        return {"any": [opened(v) for v in of["any"]]}
    return of


def sized(value):
    """The number of parts of a value: shared parts are counted each time, as they are written."""
    if "size" not in value:
        parts = value.get("of") or value.get("any")
        if not parts:
            return 1
        value["size"] = 1 + sum(sized(v) for v in parts if v is not None)
    return value["size"]


def plain(value):
    """A value as JSON."""
    if value is None:
        return {"name": "?"}
    if "any" in value:
        return {"any": [plain(v) for v in value["any"]], "size": sized(value)}
    if "merged" in value:
        under, above = value["merged"][:-1], plain(value["merged"][-1])
        return dict(above, under=plain({"merged": under})) if under and "file" in above else above
    for kind in ("literal", "instance", "class", "namespace"):
        if kind in value:
            return {"name": kind}
    return value


def alternatives(values, name):
    """Several possible values; None for those that only repeat themselves."""
    flat = []
    for v in values:
        for one in (v["any"] if v is not None and "any" in v else [v]):
            if one is not None and one not in flat and len(flat) < WIDTH and not repeats(one, flat):
                flat.append(one)
    if not flat:
        return {"name": name} if not values else None
    return flat[0] if len(flat) == 1 else {"any": flat}
