# Reads a job's Python sources, its input, and prints the names that they have, as JSON: imports, classes, calls of
# classes, and the arguments that parsers declare. Nothing of the job is imported or run, and no value is followed.
import ast
import gc
import itertools
import json
import re
import signal
import sys


def walk(node):
    """A node and all below it, in the order of the source."""
    todo, found = [node], []
    while todo:
        node = todo.pop()
        found.append(node)
        todo.extend(reversed(list(ast.iter_child_nodes(node))))
    return found


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


def is_main(node):
    return isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# Calls are listed if the called object is a class, or has one of these names.
CALLED = {"initialize", "fit", "train"}
READERS = re.compile(r"^(\w*Argument[pP]arser|TrlParser|parse_args|parse_known_args|parse_args_into_dataclasses|Fire|LightningCLI|from_cli|CLI|auto_cli|make_cli|default_argument_parser)$"
                     r"|(^|\.)(hydra\.main|typer\.(Typer|run)|click\.command|app\.run|tyro\.cli)$")
JOINS = {"init_process_group", "init_device_mesh", "init_distributed", "init_distributed_mode", "init_distributed_device"}
SPAWNS = re.compile(r"(?:^|\.)((?:mp|multiprocessing|xmp)\.(?:spawn|start_processes)|start_processes|notebook_launcher|debug_launcher|elastic_launch)$")
OPTION = re.compile(r"-{1,2}[A-Za-z][\w./-]*$")
# Functions that read classes from the command line, and the form of the arguments.
OF_CLASSES = re.compile(r"(?:^|\.)(HfArgumentParser|TrlParser|tyro\.cli|simple_parsing\.parse|simple_parsing\.ArgumentParser|pyrallis\.wrap|pyrallis\.parse|draccus\.wrap|draccus\.parse|jsonargparse\.CLI|auto_cli)$")
FORMS = {"HfArgumentParser": "hf", "TrlParser": "hf", "tyro.cli": "tyro", "simple_parsing.parse": "simple", "simple_parsing.ArgumentParser": "simple",
         "pyrallis.wrap": "pyrallis", "pyrallis.parse": "pyrallis", "draccus.wrap": "pyrallis", "draccus.parse": "pyrallis", "jsonargparse.CLI": "argparse", "auto_cli": "argparse"}
ABSL = {"DEFINE_integer": "int", "DEFINE_float": "float", "DEFINE_bool": "bool", "DEFINE_boolean": "bool", "DEFINE_string": "str", "DEFINE_enum": "str"}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# The help of an argument that counts the samples of all ranks, and of one that does not.
OF_ALL = re.compile(r"(?i)\b(total|global|overall)\b.{0,20}\bbatch|\bbatch.{0,40}\b(all|across) .{0,20}(gpu|device|rank|process|node)")
OF_EACH = re.compile(r"(?i)\b(per|each|single|one)[- _](gpu|device|rank|process|replica|core|node)")


def names_in(nodes):
    return {n.id for n in nodes if type(n) is ast.Name}


def uncalled(parts):
    """The functions of a file that its import does not need, and no class of it: nothing or only its main block calls them, or
    only they. By name, with their nodes and the names that they use."""
    known = {s.name: (nodes, names_in(nodes)) for s, nodes in parts if isinstance(s, FUNCTIONS) and not s.decorator_list}
    if not known:
        return known
    needed = set().union(*(names_in(nodes) for s, nodes in parts if getattr(s, "name", "") not in known and not is_main(s)))
    called = reached(needed, known)
    return {name: function for name, function in known.items() if name not in called}


def reached(names, known):
    """The known functions that some names mean, and those that they use."""
    todo, found = [name for name in known if name in names], set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(known.keys() & known[name][1])
    return found


class Surface:
    """The names of one file."""

    def __init__(self, path, text, tree, names, first):
        self.bytes, self.starts = text.encode("utf-8", "surrogatepass"), [0]
        for line in self.bytes.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        parts = [(s, walk(s)) for s in tree.body]
        # Functions that an imported file does not call, such as the parser of its main block, are set aside: another file may.
        self.aside = {} if first else uncalled(parts)
        self.nodes = [n for s, nodes in parts if not is_main(s) and getattr(s, "name", "") not in self.aside for n in nodes]
        self.main = [n for s, nodes in parts if is_main(s) for n in nodes]
        if first:
            self.nodes, self.main = self.nodes + self.main, []
        self.tables = []
        self.names, self.imports = CALLED | set(names), {}
        self.found = {"path": path, "calls": [], "classes": [], "options": [], "declared": [], "parsed": [], "defaults": {}, "open": False, "exact": False,
                      "aliases": {}, "reads": False, "joins": "", "spawns": "", "hydra": None}
        self.functions = {}
        self.read(self.nodes)

    def read(self, nodes, runs=True):
        """Records the names of some of the file's nodes; not the arguments that they declare, if the job does not run them."""
        kept = list(self.found["declared"]), list(self.tables)
        self.found["reads"] = self.found["reads"] or any(self.reads(n) for n in nodes)
        self.functions.update((n.name, n) for n in nodes if isinstance(n, FUNCTIONS))
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imported(node)
        for node in nodes:
            if isinstance(node, ast.Call):
                self.called(node)
            elif isinstance(node, ast.ClassDef):
                self.declared(node)
            elif isinstance(node, FUNCTIONS) and b"ArgumentParser" in self.bytes:
                self.table(node)
            for d in getattr(node, "decorator_list", []):
                self.decorated(node, d)
        if not runs:
            self.found["declared"], self.tables = kept

    def mentions(self):
        """The names that the file takes from others, as members or by imports."""
        found = set()
        for nodes in [self.nodes] + [nodes for nodes, _ in self.aside.values()]:
            found.update(n.attr for n in nodes if type(n) is ast.Attribute)
            taken = {a.name for n in nodes if type(n) is ast.ImportFrom for a in n.names}
            found.update(taken, names_in(self.nodes) if "*" in taken else ())
        return found

    def table(self, function):
        """Keeps the numbers that a function that makes a parser has by name, for a parser whose arguments are computed."""
        nodes = walk(function)
        if not any(isinstance(n, ast.Call) and last(n.func).endswith("ArgumentParser") for n in nodes):
            return
        for node in nodes:
            if isinstance(node, ast.Call) and last(node.func) == "dict":
                pairs = [(k.arg, k.value) for k in node.keywords]
            elif isinstance(node, ast.Dict):
                pairs = [(text_of(k), v) for k, v in zip(node.keys, node.values)]
            else:
                continue
            self.tables += [(name, v) for name, v in pairs if name and isinstance(v, ast.Constant) and type(v.value) is int]

    def code(self, node):
        """The text of a node as it is written."""
        start, end = self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset
        return self.bytes[start:end].decode("utf-8", "replace")

    def literal(self, node):
        """The value of a literal; empty for a computed one."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)) and isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float):
            sign = "-" if isinstance(node.op, ast.USub) else ""
            return {"text": sign + self.literal(node.operand)["text"], "known": True}
        if not isinstance(node, ast.Constant):
            return {}
        if node.value is None:
            return {"none": True, "known": True}
        if isinstance(node.value, str):
            return {"text": node.value, "known": True}
        if isinstance(node.value, (bool, int, float)):
            return {"text": self.code(node).replace("_", ""), "known": True}
        return {}

    def given(self, node, prefix=""):
        return dict(self.literal(node), code=prefix + self.code(node))

    def reads(self, node):
        """Whether a node reads the command line."""
        if isinstance(node, ast.Call):
            return bool(READERS.search(last(node.func)) or READERS.search(dotted(node.func)))
        if isinstance(node, ast.Attribute):
            return node.attr == "argv" and dotted(node) == "sys.argv"
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str) and node.value.endswith("configurator.py")
        return any(dotted(getattr(d, "func", d)).startswith("click.") for d in getattr(node, "decorator_list", []))

    def imported(self, node):
        """Records the names under which a file knows its imports."""
        module = "." * getattr(node, "level", 0) + (getattr(node, "module", None) or "")
        for a in node.names:
            if isinstance(node, ast.ImportFrom):
                self.imports.setdefault(a.asname or a.name, []).append(module + "." + a.name)
            elif a.asname:
                self.imports.setdefault(a.asname, []).append(a.name)
            else:
                top = a.name.split(".")[0]
                self.imports.setdefault(top, []).append(top)
            if a.asname and a.asname != a.name:
                self.found["aliases"][a.asname] = a.name.rsplit(".", 1)[-1]

    def whole(self, node):
        """The full name of what a node names, by the file's imports."""
        full = dotted(node)
        first, _, _ = full.partition(".")
        return [top + full[len(first):] for top in self.imports.get(first, [])]

    def called(self, call):
        name, full = last(call.func), dotted(call.func)
        words = {k.arg: k.value for k in call.keywords if k.arg}
        if name[:1].isupper() or name in self.names:
            self.found["calls"].append({
                "name": full, "line": call.lineno, "whole": self.whole(call.func),
                "positional": [self.given(a) for a in call.args] + [self.given(k.value, "**") for k in call.keywords if k.arg is None],
                "keyword": {k: self.given(v) for k, v in words.items()}})
        if name in JOINS:
            self.found["joins"] = self.found["joins"] or name
        spawns = SPAWNS.search(full)
        if spawns:
            self.found["spawns"] = self.found["spawns"] or spawns.group(1)
        if words.get("allow_abbrev") is not None and getattr(words["allow_abbrev"], "value", None) is False:
            self.found["exact"] = True
        self.argument(call, name, words)
        self.commands(call, name, full, words)

    def argument(self, call, name, words):
        """Records the arguments that a call gives a parser, and their defaults."""
        if name == "set_defaults":
            self.found["defaults"].update((k, self.literal(v)) for k, v in words.items())
        texts = list(itertools.takewhile(lambda t: t is not None, (text_of(a) for a in call.args)))
        if name == "add_argument" and (call.args or call.keywords) and not texts:
            self.found["open"] = True  # its name is computed
        options = list(itertools.takewhile(OPTION.match, texts))
        if not texts or not texts[0].startswith("-") or not options:
            return
        action = self.code(words["action"]).strip("'\"") if "action" in words else ""
        if "default" in words:
            value = self.literal(words["default"])
        elif "store_true" in action or "store_false" in action:
            value = {"text": str("store_false" in action), "known": True}
        elif "append" in action or "required" in words:
            value = {}
        else:
            value = {"none": True, "known": True}
        options = [o for names in options for o in names.split("/")]
        self.found["options"].append({"names": options, "default": value})
        if "BooleanOptionalAction" in action:
            self.found["options"].append({"names": ["--no-" + o.lstrip("-") for o in options], "default": {}})
        if name in ("add_argument", "option"):
            dest = text_of(words["dest"]) if "dest" in words else next((o for o in options if o.startswith("--")), options[0]).lstrip("-").replace("-", "_")
            nargs = self.code(words["nargs"]).strip("'\"") if "nargs" in words else ""
            choices = words.get("choices")
            about = text_of(words["help"]) or "" if "help" in words else ""
            self.declare("click" if name == "option" else "argparse", options, dest, self.code(words["type"]) if "type" in words else "", value, call, action=action or nargs,
                         all=bool(OF_ALL.search(about) and not OF_EACH.search(about)),
                         choices=[self.literal(c).get("text", "") for c in getattr(choices, "elts", [])])

    def declare(self, kind, names, dest, of, value, node, **more):
        self.found["declared"].append(dict({"kind": kind, "names": names, "dest": dest, "type": of, "default": value, "line": node.lineno}, **more))

    def commands(self, call, name, full, words):
        """Records the arguments of absl's flags, and of functions and classes that a library makes arguments of."""
        if name in ABSL and call.args and text_of(call.args[0]):
            flag = text_of(call.args[0])
            value = words.get("default") or (call.args[1] if len(call.args) > 1 else None)
            self.declare("absl", ["--" + flag], flag, ABSL[name], self.literal(value), call)
        for whole in self.whole(call.func) + [full]:
            reads = OF_CLASSES.search(whole)
            if reads:
                form = FORMS[reads.group(1)]
                given = [last(n) for a in call.args + list(words.values()) for n in ast.walk(a) if isinstance(n, (ast.Name, ast.Attribute))]
                self.found["parsed"].append({"form": form, "classes": given})
                for function in given:
                    self.parameters(self.functions.get(function), form)
                return
        if name == "Fire":
            given = [last(n) for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)]
            for function in given or list(self.functions):
                self.parameters(self.functions.get(function), "fire")
        elif full == "typer.run" and call.args:
            self.parameters(self.functions.get(last(call.args[0])), "typer")

    def decorated(self, node, d):
        """Records the arguments of a function by its decorator."""
        of = getattr(d, "func", d)
        whole = self.whole(of) + [dotted(of)]
        if any(w == "hydra.main" for w in whole) and isinstance(d, ast.Call):
            words = {k.arg: text_of(k.value) for k in d.keywords if k.arg}
            words.update(zip(("config_path", "config_name"), (text_of(a) for a in d.args)))
            self.found["hydra"] = {"folder": words.get("config_path") or ".", "name": words.get("config_name") or ""}
        elif last(of) == "command" and any(w.split(".")[0] == "typer" for names in self.imports.values() for w in names):
            self.parameters(node, "typer")
        elif last(of) == "wrap" and any(OF_CLASSES.search(w) for w in whole):
            given = [last(a.annotation) for a in getattr(node, "args", ast.arguments(args=[])).args if a.annotation is not None]
            self.found["parsed"].append({"form": "pyrallis", "classes": given})

    def parameters(self, function, form):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        args = function.args.args + function.args.kwonlyargs
        positional = len(function.args.args) - len(function.args.defaults)
        defaults = [None] * positional + list(function.args.defaults) + list(function.args.kw_defaults)
        for arg, default in zip(args, defaults):
            if arg.arg in ("self", "cls") or default is None:
                continue
            names, of = ["--" + (arg.arg if form == "fire" else arg.arg.replace("_", "-"))], last(arg.annotation)
            if isinstance(default, ast.Call) and last(default.func) == "Option":  # of typer
                names = [t for t in (text_of(a) for a in default.args[1:]) if t] or names
                default = default.args[0] if default.args else {k.arg: k.value for k in default.keywords}.get("default")
            self.declare(form, names, arg.arg, of, self.literal(default), arg)

    def declared(self, node):
        known = {"name": node.name, "bases": [last(b) for b in node.bases], "fields": {}, "types": {},
                 "data": any(last(getattr(d, "func", d)) in ("dataclass", "define", "frozen") for d in node.decorator_list) or "Tap" in [last(b) for b in node.bases], "line": node.lineno}
        for s in node.body:
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
                value = s.value
                if isinstance(value, ast.Call) and last(value.func) in ("field", "Field"):
                    value = {k.arg: k.value for k in value.keywords}.get("default")
                known["fields"][s.target.id] = self.literal(value)
                known["types"][s.target.id] = self.code(s.annotation)
        for n in ast.walk(node) if known["fields"] else ():
            for target in n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else ():
                if isinstance(target, ast.Attribute) and dotted(target) == "self." + target.attr and target.attr in known["fields"]:
                    known["fields"][target.attr] = {}  # which a method assigns
        self.found["classes"].append(known)


class Late(BaseException):
    """The time for reading is over."""


def late(*_):
    raise Late


def called(surfaces):
    """Reads what was set aside and another file names, and the computed arguments of parsers."""
    named = set().union(*(s.mentions() for s in surfaces))
    for s in surfaces:
        used = reached(named, s.aside)
        for name, (nodes, _) in s.aside.items():
            s.read(nodes, name in used)
        reads = s.found["reads"]
        s.read(s.main, False)
        s.found["reads"] = reads
    if any(s.found["open"] for s in surfaces):
        for s in surfaces:
            for name, value in s.tables:
                s.declare("argparse", ["--" + name], name, "int", s.literal(value), value)


def answer(given):
    """The names in the sources, as JSON."""
    found, surfaces = {"files": []}, []
    signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, given["seconds"])  # a busy machine changes no answer
    try:
        for n, source in enumerate(given["sources"]):
            text = source["text"].replace("\r\n", "\n").replace("\r", "\n")
            try:
                tree = ast.parse(text)
            except Exception as fault:
                found["files"].append({"path": source["path"], "failed": type(fault).__name__})
                continue
            surfaces.append(Surface(source["path"], text, tree, given["names"] or (), n == 0))
            found["files"].append(surfaces[-1].found)
        called(surfaces)
    except Late:
        found["unknown"] = "the sources take longer than %g s to read" % given["seconds"]
    except Exception as fault:
        found["unknown"] = "%s: %s" % (type(fault).__name__, fault)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return json.dumps(found)


def main():
    sys.setrecursionlimit(5000)
    gc.disable()  # it ends soon
    sys.stdout.write("\n" + answer(json.loads(sys.stdin.buffer.read().decode("utf-8", "replace"))) + "\n")


if __name__ == "__main__":
    main()
