# Reads a job's Python sources, its input, and prints what they contain as JSON.
# Nothing of the job is imported or run. This part reads each file by itself, whether or not its
# code runs: its calls, its classes, the arguments of its parsers, and how it takes part in a
# training. The later parts, which are sent only if deep is set, read all files together.
import ast
import collections
import gc
import itertools
import json
import re
import signal
import sys

def children(node):
    """The child nodes of a node without operators and contexts, cached."""
    known = getattr(node, "gpurun_inner", None)
    if known is None:
        known = node.gpurun_inner = []
        for name in node._fields:
            value = getattr(node, name, None)
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, ast.AST) and part._fields:
                    known.append(part)
    return known


def inner_nodes(node):
    """The child nodes of a node without contexts, cached."""
    known = getattr(node, "gpurun_nodes", None)
    if known is None:
        known = node.gpurun_nodes = []
        for name in node._fields:
            value = getattr(node, name, None) if name != "ctx" else None
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, ast.AST):
                    known.append(part)
    return known


def walk(node):
    """A node and all below it, in the order of ast.walk."""
    todo = [node]
    for part in todo:
        todo += inner_nodes(part)
    return todo


def text(node):
    """The Python text of a node, cached."""
    known = getattr(node, "gpurun_text", None)
    if known is None:
        known = written(node)
        try:
            node.gpurun_text = known
        except AttributeError:  # None, where an expression is left out
            pass
    return known


def written(node):
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
    return " ".join(text(c) for c in inner_nodes(node) if isinstance(c, ast.expr))[:120] or type(node).__name__


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
    """The value of a literal, and whether the node is one."""
    kind = type(node)
    if kind is ast.Constant:
        return node.value, isinstance(node.value, (int, float, str, bool, type(None)))
    if kind is ast.UnaryOp and isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float):
        return -node.operand.value if isinstance(node.op, ast.USub) else node.operand.value, True
    if kind is ast.BinOp and isinstance(node.op, (ast.Mult, ast.Pow)):
        (a, known), (b, also) = constant(node.left), constant(node.right)
        if known and also and type(a) is int and type(b) is int and abs(a) < 1 << 40 and 0 <= b < 1 << 20:
            if isinstance(node.op, ast.Mult):
                return a * b, True
            if b < 40:
                return a ** b, abs(a) < 1 << 16
    return None, False


def is_main(node):
    return isinstance(node, ast.If) and "__name__" in text(node.test) and "__main__" in text(node.test)


# Calls are listed if the called object is a class, or has one of these names.
CALLED = {"initialize", "model", "fit", "train"}
READERS = re.compile(r"^(\w*Argument[pP]arser|TrlParser|parse_args|parse_known_args|parse_args_into_dataclasses|Fire|LightningCLI|from_cli|CLI|auto_cli|make_cli|default_argument_parser)$"
                     r"|(^|\.)(hydra\.main|typer\.(Typer|run)|click\.command|app\.run|tyro\.cli)$")
JOINS = {"init_process_group", "init_device_mesh", "init_distributed", "init_distributed_mode", "init_distributed_device"}
OUTPUTS = re.compile(r"out|save|log|exp|run|work_?dir|model_?dir|result|ckpt|checkpoint", re.I)
RANK = re.compile(r"^(local_|global_|world_)?rank$")
SPAWNS = re.compile(r"(?:^|\.)((?:mp|multiprocessing|xmp)\.spawn|notebook_launcher|debug_launcher|elastic_launch)$")
SCHEDULERS = re.compile(r"^(\w*(OneCycleLR|CosineAnnealing\w*|LinearLR|PolynomialLR|LambdaLR|CosineLRScheduler|CyclicLR)|get_(\w+_)?schedule(r|_with_\w+)?)$")
COUNTS = re.compile(r"\blen\([^()]*(load|dl\b|iter|train|data)[^()]*\)")
OPTION = re.compile(r"-{1,2}[A-Za-z][\w./-]*$")
ONE_PIECE = {"torch.compile", "torch.jit.script"}


def parsed(source):
    """The syntax tree of a source, or the reason why it has none."""
    source["text"] = source["text"].replace("\r\n", "\n").replace("\r", "\n")
    try:
        return ast.parse(source["text"]), ""
    except Exception as fault:
        return None, type(fault).__name__


def preorder(nodes):
    todo, found = list(reversed(nodes)), []
    while todo:
        node = todo.pop()
        found.append(node)
        todo.extend(reversed(children(node)))
    return found


class Surface:
    """One file by itself."""

    def __init__(self, path, text, tree, names, first):
        self.bytes, self.starts = text.encode("utf-8", "surrogatepass"), [0]
        for line in self.bytes.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        library = preorder([s for s in tree.body if not is_main(s)])
        self.nodes = library + preorder([s for s in tree.body if is_main(s)])
        self.names, self.imports, self.assigned = CALLED | set(names), {}, {}
        self.found = {"path": path, "calls": [], "classes": [], "options": [], "defaults": {}, "open": False, "exact": False, "aliases": {},
                      "reads": any(self.reads(n) for n in (self.nodes if first else library)), "joins": "", "spawns": "", "starts": "", "given": "", "runs": "", "again": 0, "again_in": "", "pipeline": False}
        for node in self.nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imported(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], (ast.Name, ast.Attribute)):
                self.assigned.setdefault(dotted(node.targets[0]), []).append(node)
        self.classes = [n for n in self.nodes if isinstance(n, ast.ClassDef)]
        self.within = {id(n): c for c in self.classes for n in ast.walk(c) if isinstance(n, ast.Attribute)}
        self.stores, self.makes = {}, {}  # by name: attributes that are set, and calls
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                self.stores.setdefault(node.attr, []).append(node)
            elif isinstance(node, ast.Call):
                self.makes.setdefault(last(node.func), []).append(node)
        self.bases = {last(b) for c in self.classes for b in c.bases}
        self.ranked = {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.args.args and RANK.match(n.args.args[0].arg)}
        for node in self.nodes:
            if isinstance(node, ast.Call):
                self.called(node)
            elif isinstance(node, ast.ClassDef):
                self.declared(node)
            elif isinstance(node, ast.If) and not self.found["again"]:
                self.found["again"] = self.refuses(node)
                if self.found["again"]:
                    self.found["again_in"] = self.function_of(node)
        self.found["fixed"] = self.fixed(tree.body)

    def refuses(self, node):
        """The line of a test whether a folder of outputs is there already, if an error or a question follows; 0 for
        another test."""
        there = [text(c) for c in walk(node.test) if isinstance(c, ast.Call) and last(c.func) in ("exists", "isdir", "is_dir", "listdir")]
        outputs = any(OUTPUTS.search(t) and "not " + t not in text(node.test) for t in there)
        return node.lineno if outputs and self.ends(node.body) and not re.search(r"preproc|dataset|download|prepare", self.function_of(node)) else 0

    def ends(self, body):
        """Whether statements raise an error or ask, at once or under a further condition, but not otherwise than it."""
        for s in body:
            if isinstance(s, ast.If) and self.ends(s.body) or isinstance(s, ast.Raise):
                return True
            if not isinstance(s, ast.If) and any(isinstance(n, ast.Call) and last(n.func) in ("input", "exit", "quit") for n in walk(s)):
                return True
        return False

    def function_of(self, node):
        """The name of the innermost function around a node; empty for none."""
        around = [n for n in self.nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.lineno <= node.lineno <= n.end_lineno]
        return max(around, key=lambda n: n.lineno).name if around else ""

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
        return dict(self.literal(node) or self.through(node), code=prefix + self.code(node))

    def through(self, node):
        """The literal that the only instance of a class gives to an attribute: the 64 of DM(batch_size=64) for
        self.batch_size; empty if it is not certain."""
        made, name = self.within.get(id(node)), last(node)
        init = next((f for f in made.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None) if made else None
        stores, calls = self.stores.get(name, []), self.makes.get(made.name, []) if init else []
        if len(calls) != 1 or any(isinstance(a, ast.Starred) for a in calls[0].args) or made.name in self.bases:
            return {}
        param = name
        if dotted(node) == "self." + name and len(stores) == 1:
            kept = next((s.value for s in init.body if isinstance(s, (ast.Assign, ast.AnnAssign)) and stores[0] in (s.targets if isinstance(s, ast.Assign) else [s.target])), None)
            param = kept.id if isinstance(kept, ast.Name) else ""
        elif dotted(node) != "self.hparams." + name or stores or not any(isinstance(n, ast.Call) and last(n.func) == "save_hyperparameters" and not n.args for n in ast.walk(init)):
            return {}
        if any(isinstance(n, ast.Name) and n.id == param and not isinstance(n.ctx, ast.Load) for n in ast.walk(init)):
            return {}
        words, call = [a.arg for a in init.args.args], calls[0]
        given = dict(zip(reversed(words), reversed(init.args.defaults)))
        given.update(zip(words[1:], call.args))
        given.update({k.arg: k.value for k in call.keywords})
        value = self.literal(given[param]) if param in words and param in given and None not in given else {}
        return value if value.get("known") else {}

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

    def called(self, call):
        name, full = last(call.func), dotted(call.func)
        words = {k.arg: k.value for k in call.keywords if k.arg}
        if name[:1].isupper() or name in self.names:
            first, _, rest = full.partition(".")
            self.found["calls"].append({
                "name": full, "line": call.lineno, "whole": [whole + full[len(first):] for whole in self.imports.get(first, [])],
                "positional": [self.given(a) for a in call.args] + [self.given(k.value, "**") for k in call.keywords if k.arg is None],
                "keyword": {k: self.given(v) for k, v in words.items()}})
        if name in JOINS:
            self.found["joins"] = self.found["joins"] or name
        spawns = SPAWNS.search(full)
        if spawns:
            self.found["spawns"] = self.found["spawns"] or spawns.group(1)
        if name == "Process" and any(whole.startswith("torch.multiprocessing") for whole in self.imports.get(full.split(".")[0], [])):
            self.found["starts"] = "torch.multiprocessing.Process"
        elif name == "Process" and "target" in words or name == "Popen":
            self.found["starts"] = name
        ranked = next((a.id for a in call.args[:1] if isinstance(a, ast.Name) and a.id in self.ranked), "")
        if ranked and full.split(".")[0] in self.imports:
            self.found["given"] = "%s to %s" % (ranked, full)
        if full == "os.system" or full.startswith("subprocess.") and name in ("run", "call", "check_call", "Popen"):
            self.found["runs"] = full
        self.found["pipeline"] = self.found["pipeline"] or name == "PipelineModule"
        self.found["exact"] = self.found["exact"] or constant(words.get("allow_abbrev")) == (False, True)
        if "schedule" not in self.found and SCHEDULERS.match(name):
            self.scheduled(call, name)
        self.argument(call, name, words)

    def argument(self, call, name, words):
        """Records the arguments that a call gives a parser, and their defaults."""
        if name == "set_defaults":
            self.found["defaults"].update((k, self.literal(v)) for k, v in words.items())
        texts = []
        for a in call.args:
            value, known = constant(a)
            if not known or not isinstance(value, str):
                break
            texts.append(value)
        if name == "add_argument" and (call.args or call.keywords) and not texts:
            self.found["open"] = True  # its name is computed
        options = list(itertools.takewhile(OPTION.match, texts))
        if not texts or not texts[0].startswith("-") or not options:
            return
        action = self.code(words["action"]) if "action" in words else ""
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

    def declared(self, node):
        known = {"name": node.name, "bases": [last(b) for b in node.bases], "fields": {}, "forward": 0}
        self.found["pipeline"] = self.found["pipeline"] or "PipelineModule" in known["bases"]
        for s in node.body:
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
                value = s.value
                if isinstance(value, ast.Call) and dotted(value.func) in ("field", "dataclasses.field"):
                    value = {k.arg: k.value for k in value.keywords}.get("default")
                known["fields"][s.target.id] = self.literal(value)
            elif isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)) and s.name == "forward":
                known["forward"] = max(0, len(getattr(s.args, "posonlyargs", []) + s.args.args) - 1 - len(s.args.defaults))
        for n in walk(node) if known["fields"] else ():
            for target in n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else ():
                if isinstance(target, ast.Attribute) and dotted(target) == "self." + target.attr and target.attr in known["fields"]:
                    known["fields"][target.attr] = {}  # which a method assigns
        self.found["classes"].append(known)

    def fixed(self, body):
        """The call that certainly compiles the whole model; empty if none does, or only under a
        condition."""
        for s in body:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or is_main(s):
                found = self.fixed(s.body)
                if found:
                    return found
            elif isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and dotted(s.value.func) in ONE_PIECE and s.value.args and dotted(s.targets[0]) == dotted(s.value.args[0]):
                return dotted(s.value.func)
        return ""

    def scheduled(self, call, name):
        """Records a schedule whose length is the number of a loader's batches."""
        for given, node in [("", a) for a in call.args] + [((k.arg or "**") + "=", k.value) for k in call.keywords]:
            if "accum" not in given and self.in_batches(node, call.lineno, 4):
                self.found["schedule"] = {"name": name, "line": call.lineno, "text": given + " ".join(self.code(node).split())}
                return

    def in_batches(self, node, line, depth):
        """Whether an expression is computed from the number of a loader's batches, by the
        assignments above it."""
        code = self.code(node)
        if "accum" in code.lower() or "update_freq" in code:
            return False
        if COUNTS.search(code):
            return True
        for part in walk(node) if depth else ():
            if isinstance(part, (ast.Name, ast.Attribute)):
                above = [s for s in self.assigned.get(dotted(part), []) if s.lineno < line]
                if above and self.in_batches(above[-1].value, above[-1].lineno, depth - 1):
                    return True
        return False


class Late(BaseException):
    """The time for reading is over."""


def late(*_):
    raise Late


def answer(given):
    """The content of the sources, as JSON: each file by itself, and if deep is set the conclusions
    from all of them."""
    found, reader = {"files": []}, None
    signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, given["seconds"])  # a busy machine changes no answer
    try:
        for n, source in enumerate(given["sources"]):
            tree, why = parsed(source)
            source["tree"] = tree
            found["files"].append(Surface(source["path"], source["text"], tree, given["names"] or (), n == 0).found if tree else {"path": source["path"], "failed": why})
        if given["deep"]:
            reader = Loops(given["sources"])
            found["facts"] = reader.facts()
    except Late:
        found["unknown"] = "the sources take longer than %g s to read" % given["seconds"]
    except Exception as fault:
        found["unknown"] = "%s: %s" % (type(fault).__name__, fault)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if "unknown" in found and getattr(reader, "first", None):  # the settings are read before the loss
        found["facts"] = dict(reader.first, unread=found.pop("unknown"))
    return json.dumps(found)


def main(answer=answer):
    sys.setrecursionlimit(5000)
    gc.disable()  # it ends soon
    sys.stdout.write("\n" + answer(json.loads(sys.stdin.buffer.read().decode("utf-8", "replace"))) + "\n")
