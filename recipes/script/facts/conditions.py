# The conditions under which code runs: the tests of the branches that it is in, of those that would have ended before
# it, and of the only call of its function.


class Conditions(Sources):
    """The conditions of code and of values."""

    def branches(self, node, scope):
        """The conditions under which a node runs: the test, its text, and whether it holds there. Those of the only
        call of its function count."""
        return self.once_known(("branches", id(node)), lambda: self.conditions_of(node, scope, 0))

    def located(self, node, scope):
        """The place of a node, with the conditions under which it runs."""
        return {"file": scope.file.path, "line": node.lineno, "branches": self.branches(node, scope)}

    def conditions_of(self, node, scope, depth):
        found, top = [], node
        for inner, above in ancestors(node):
            if isinstance(above, FUNCTIONS):
                break
            if isinstance(above, (ast.If, ast.IfExp)) and inner is not above.test and not is_main(above):
                body = above.body if isinstance(above.body, list) else [above.body]
                found.append(self.condition(above.test, scope, any(b is inner for b in body)))
            found += self.ended_before(inner, above, scope)
            top = above
        found += self.ended_before(top, scope.node, scope)
        site = self.only_call(scope) if depth < 4 else None
        return found + (self.conditions_of(site[0], site[1], depth + 1) if site else [])

    def condition(self, test, scope, holds):
        return {"test": self.comparison(test, scope), "text": text(test)[:80], "holds": holds}

    def ended_before(self, node, above, scope):
        """The conditions that do not hold where a statement of a block runs, since the block would have ended: the
        nearest ones."""
        for part in ("body", "orelse", "finalbody"):
            block = getattr(above, part, None)
            if isinstance(block, list):
                for test in self.once_known(("exits", id(block)), lambda: exits(block)).get(id(node), ()):
                    yield dict(self.condition(test, scope, False), before=True)

    def only_call(self, scope):
        """The only call of a function that is named nowhere else, and its scope."""
        if scope.cls is not None or not scope.name or scope.node.decorator_list or len(self.functions.get(scope.name, [])) > 1:
            return None
        sites = self.sites(scope)
        return sites[0][:2] if len(sites) == 1 and self.named_times[scope.name] < 2 else None

    def comparison(self, test, scope):
        """A test that compares values with literals, or asks whether a value is set."""
        return self.once_known(("test", id(test), id(scope)), lambda: self.compared_with(test, scope))

    def compared_with(self, test, scope):
        if id(test) in self.testing:  # a condition for its own value
            self.cuts += 1
            return {"name": "?"}
        self.testing.add(id(test))
        try:
            return self.tested(test, scope)
        finally:
            self.testing.remove(id(test))

    def tested(self, test, scope):
        if constant(test)[1]:
            return {"const": bool(constant(test)[0])}
        if isinstance(test, ast.BoolOp):
            return {"op": "and" if isinstance(test.op, ast.And) else "or", "of": [self.comparison(v, scope) for v in test.values]}
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return {"op": "not", "of": [self.comparison(test.operand, scope)]}
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            kind, right = type(test.ops[0]), test.comparators[0]
            listed = right.elts if kind in (ast.In, ast.NotIn) and isinstance(right, (ast.List, ast.Tuple, ast.Set)) else [right] if kind in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot) else []
            if listed and all(constant(r)[1] for r in listed):
                same = {"op": "in", "of": [plain(self.value(n, scope)) for n in [test.left] + listed]}
                return {"op": "not", "of": [same]} if kind in (ast.NotIn, ast.NotEq, ast.IsNot) else same
        if isinstance(test, (ast.Name, ast.Attribute, ast.Subscript)):
            value = plain(self.value(test, scope))
            return {"op": "true", "of": [value]} if "name" not in value else {"name": "?"}
        return {"name": "?"}

    def conditioned(self, value, node, scope):
        """A value that the code gives at a node, with the conditions for that."""
        if value is None or any(kind in value for kind in UNCONDITIONAL):
            return value
        when = [b for b in self.branches(node, scope) if b["test"].get("name") != "?"]
        if not when or sum(parts_of(b["test"]) for b in when) > CONDITIONS:
            return value
        return dict(value, any=[labelled(v, when) for v in value["any"]]) if "any" in value else labelled(value, when)


def labelled(value, when):
    """A value with more conditions."""
    if any(kind in value for kind in UNCONDITIONAL):
        return value
    return dict(value, when=when + value.get("when", []))


def parts_of(value):
    """The number of parts of a value, with those of its conditions."""
    parts = value.get("of", []) + value.get("any", []) + [b["test"] for b in value.get("when", [])]
    return 1 + sum(parts_of(v) for v in parts if v is not None)


def quits(block):
    """Whether the code after a block does not run if the block does."""
    final = block[-1]
    return isinstance(final, (ast.Return, ast.Raise, ast.Continue, ast.Break)) or isinstance(final, ast.Expr) and isinstance(final.value, ast.Call) and text(final.value.func) in ("exit", "sys.exit", "quit", "os._exit")


def exits(block):
    """For each statement of a block the tests before it that end the block, at most NEAREST."""
    found, nearest = {}, ()
    for s in block:
        if nearest:
            found[id(s)] = nearest
        if isinstance(s, ast.If) and quits(s.body):
            nearest = nearest[1 - NEAREST:] + (s.test,)
    return found


def repeats(one, known):
    """Whether a list has a value under other conditions. That value then has none, since any of them is enough."""
    for n, other in enumerate(known):
        if ("when" in one or "when" in other) and without(one) == without(other):
            known[n] = without(other)
            return True
    return False


def without(value):
    """A value without what belongs to its place."""
    return {k: v for k, v in value.items() if k not in LABELS}
