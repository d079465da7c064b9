"""Raises an error in each function of the hook, one at a time, in jobs with and without out of memory.

The jobs get what they would have got: a healthy one its own results, one that runs out of memory those of the rescued
step or its own error. Each job runs in a fork of this process, which has imported PyTorch. A first run of each job,
with a counter in each function, shows which functions it reaches.

Usage: wall.py FOLDER [EVERY [SEED]]: FOLDER has sitecustomize.py and inside/. One of EVERY functions is tried. It prints a line of
JSON for each wrong outcome, and one with counts at the end.
"""
import ast
import atexit
import faulthandler
import glob
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types

import torch
from torch import nn

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import loops  # noqa: E402

WORDS = "an error that a test put into the hook"
SECONDS = 60.0
RAISED = re.compile(r"[\w.-]*(Error|Differs)\b")


# The functions that cannot be protected: those of the wall, which all others are protected by, and those that stand in place
# of a function of the job without being made by the wall. They do no more than call it, through the wall.
WALLS = {
    "root:arm.__call__", "forwards:layer.forward", "forwards:call.__call__", "forwards:copied_with.__getstate__", "places:watch.around.call",
    "inplace:Guard.install.backward", "inplace:Guard.notice.method", "marks:Marks.put.__call__", "sitecustomize:watch.at_exit", "sitecustomize:watch.excepthook", "sitecustomize:watch.unraisablehook",
    "losscalls:listen.cross_entropy_loss", "upcast:method.convert",
    "imports:Finder.find_spec", "optimizerstep:wrap.step", "steps:wrap.step", "steps:before", "steps:after", "rootcalls:counting.count", "pace:unless_measured.call",
}


class InjectedError(Exception):
    pass


# The jobs.


class Net(loops.Net):
    """Draws random numbers, and changes statistics and an attribute."""

    def __init__(self):
        super().__init__(dropout=0.1, batch_norm=True)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def seeded():
    torch.manual_seed(0)
    random.seed(0)
    return Net().train()


def show(net, losses):
    print(json.dumps({"losses": losses, "sums": [v.double().sum().item() for v in net.state_dict().values()], "calls": net.calls, "random": torch.rand(2).tolist()}), flush=True)


def plain():
    net = seeded()
    show(net, loops.train(net, loops.batches(5)))


def accumulation():
    """Accumulates over batches of a DataLoader, evaluates, saves, and has a hook on a gradient."""
    net, losses = seeded(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.cat(loops.batches(8))), batch_size=4)
    for epoch in range(2):
        for i, (x,) in enumerate(data):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = net(x)
            output.register_hook(lambda gradient: gradient * 2)
            loss = loops.loss_of(output.float(), x) / 2
            loss.backward()
            losses.append(loss.item())
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
        net.eval()
        with torch.no_grad():
            losses.append(loops.loss_of(net(x), x).item())
        net.train()
        torch.save(net.state_dict(), os.devnull)
    show(net, losses)


def wide():
    """Logits that are computed in parts, and a batch that is divided."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(64, 16), loops.Large(), nn.Linear(16, 1 << 10)).train()
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=1e-2), []
    for x in loops.batches(3, 4, 2):
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten())
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    print(json.dumps({"losses": losses}), flush=True)


IN_PLACE = {"in_place": {"rungs": ["checkpointing", "split", "loss-parts"], "optimizer": True, "before_loss": True, "allocator": True}, "hooks": True, "questions": 10}


class Job:
    def __init__(self, run, fails=(), orders=IN_PLACE, healthy=True, rounds=False):
        self.run, self.fails, self.orders, self.healthy, self.rounds = run, fails, orders, healthy, rounds


JOBS = {
    "healthy": Job(plain),
    "accumulation": Job(accumulation),
    "forward": Job(plain, [("forward", 8)], healthy=False),
    "backward": Job(plain, [("backward", 8)], healthy=False),
    "ends": Job(plain, [("forward", n) for n in range(8, 400)], healthy=False),
    "planned": Job(plain, orders=dict(IN_PLACE, turn={"activation_checkpointing": "full"}), healthy=False),
    "planned parts": Job(wide, orders=dict(IN_PLACE, turn={"loss_parts": "on", "forward_parts": 2}), healthy=False, rounds=True),
}


# The hook.


def functions(tree, path=()):
    """Return the functions of a module, by their qualified names."""
    found = {}
    for node in ast.iter_child_nodes(tree):
        inner = path
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            inner = path + (node.name,)
            if isinstance(node, ast.FunctionDef):
                name = ".".join(inner)
                while name in found:
                    name += "'"
                found[name] = node
        for name, each in functions(node, inner).items():
            while name in found:
                name += "'"
            found[name] = each
    return found


class Hook:
    """The sources of the hook."""

    def __init__(self, folder):
        self.folder, self.texts, self.codes = folder, {}, {}
        self.paths = {"sitecustomize": "sitecustomize.py", "rules": "inside/base/rules.py"}  # by part
        for path in sorted(glob.glob(os.path.join(folder, "inside", "*", "*.py"))):
            name = os.path.basename(path)[:-3]
            if name != "__init__":
                self.paths[name] = os.path.relpath(path, folder)
                self.texts[name] = self.read(self.paths[name])
        self.texts["rules"] = os.environ["GPURUN_TEST_RULES"]  # which gpurun writes beside the other parts
        # Logits that are computed in parts are smaller here.
        self.texts["losspart"] = self.texts["losspart"].replace("LEAST, SHARE = 256 << 20", "LEAST, SHARE = 1 << 12").replace("WORK, MOST = 256 << 20, 1 << 30", "WORK, MOST = 1 << 13, 1 << 13")
        self.texts["sitecustomize"] = self.read("sitecustomize.py")
        for name in self.texts:
            self.codes[name] = self.compiled(name)

    def read(self, path):
        with open(os.path.join(self.folder, path)) as file:
            return file.read()

    def path(self, name):
        return os.path.join(self.folder, self.paths[name])

    def names(self):
        return ["%s:%s" % (part, name) for part, text in self.texts.items() for name in functions(ast.parse(text))]

    def compiled(self, part, change=None):
        tree = ast.parse(self.texts[part])
        for name, node in functions(tree).items():
            statement = change(name) if change else ""
            if statement:
                at = 1 if isinstance(node.body[0], ast.Expr) and isinstance(getattr(node.body[0], "value", None), ast.Constant) else 0
                node.body[at:at] = ast.parse(statement).body
        if part == "sitecustomize":  # it is given the compiled parts
            tree.body = [node for node in tree.body if getattr(node, "name", "") != "compiled"]
        return compile(ast.fix_missing_locations(tree), self.path(part), "exec")

    def counting(self):
        """Return all parts, with a counter in each function."""
        return {part: self.compiled(part, lambda name, part=part: "__import__('builtins').gpurun_hit(%r)" % (part + ":" + name)) for part in self.texts}

    def failing(self, name):
        """Return the part in which a function fails."""
        part, _, wanted = name.partition(":")
        return {part: self.compiled(part, lambda name: "raise __import__('builtins').gpurun_error(%r)" % WORDS if name == wanted else "")}

    def start(self, codes, rank, orders):
        """Begin as Python does that finds sitecustomize.py first in its path."""
        os.environ.update(GPURUN_PROBE_FILE=os.path.join(rank, "probe.json"), GPURUN_PROBE_NAMES="", GPURUN_PROBE_JOB="", GPURUN_PROBE_ORDERS=os.path.join(rank, "orders.json"))
        with open(os.environ["GPURUN_PROBE_ORDERS"], "w") as file:
            json.dump(dict(orders, script=os.path.abspath(sys.argv[0])), file)
        codes = dict(self.codes, **codes)
        module = types.ModuleType("sitecustomize")
        module.__dict__.update(__file__=self.path("sitecustomize"), compiled=lambda loader: codes[loader.name])
        sys.modules["sitecustomize"] = module
        exec(codes["sitecustomize"], module.__dict__)


# One run.


def child(job, start):
    """Run a job as Python runs a script, and end."""
    code = 0
    try:
        start()
        loops.expect(*job.fails)
        job.run()
    except SystemExit as e:
        code = e.code
    except BaseException:
        kind, value, trace = sys.exc_info()
        sys.last_type, sys.last_value, sys.last_traceback = kind, value, trace
        sys.excepthook(kind, value, trace)
        del trace
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Folder:
    """A folder that a fork does not remove as it ends."""

    def __enter__(self):
        self.path = tempfile.mkdtemp()
        return self.path

    def __exit__(self, *exception):
        shutil.rmtree(self.path)


class Run:
    """What a fork that runs a job printed, and its exit code."""

    def __init__(self, job, start, folder):
        self.out, self.err = os.path.join(folder, "out"), os.path.join(folder, "err")
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            for number, path in ((1, self.out), (2, self.err)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            faulthandler.dump_traceback_later(SECONDS - 5)
            try:
                child(job, start)
            except BaseException:
                traceback.print_exc()
                os._exit(99)
        end = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        self.hung = end is not None and not select.select([end], [], [], SECONDS)[0]
        if self.hung:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if end is not None:
            os.close(end)
        self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        self.seconds = time.monotonic() - began
        with open(self.out) as file:
            self.out = file.read()
        with open(self.err) as file:
            self.err = file.read()

    def frames(self):
        return [line.strip() for line in self.err.splitlines() if line.startswith("  File ")]

    def raised(self):
        """Return the last line of a traceback that names an error."""
        return next((line for line in self.err.splitlines()[::-1] if RAISED.match(line)), "")


def near(one, other):
    """Return whether losses are equal up to rounding: some steps were computed in parts, and some not."""
    a, b = (json.loads(text)["losses"] for text in (one, other))
    return len(a) == len(b) and all(abs(x - y) <= 1e-5 * abs(y) for x, y in zip(a, b))


def wrong(job, want, untouched, got):
    """Return what is wrong with an outcome, "" for nothing."""
    if got.hung:
        return "it hangs"
    if got.code == 0:
        same = got.out == untouched.out or got.out == want.out or job.rounds and near(got.out, untouched.out)
        return "" if same and want.code == 0 else "another outcome"
    if job.healthy:
        return "exit code %d" % got.code
    if got.raised().startswith("InjectedError") or "__main__.InjectedError" in got.raised():
        return "the hook's error is the job's"
    places = [frame for frame in got.frames() if "/inside/" not in frame]
    own = "DefaultCPUAllocator" in got.raised() and any("loops.py" in frame for frame in places[-5:])
    named = "gpurun's hook failed" in got.raised() and not job.fails
    return "" if own or named else "exit code %d, %s" % (got.code, got.raised())


class Try:
    def __init__(self, hook):
        self.hook = hook

    def run(self, job, codes=None, orders=None):
        with Folder() as folder:
            run = Run(job, (lambda: self.hook.start(codes, folder, job.orders)) if codes is not None else (lambda: None), folder)
            path = os.path.join(folder, "process.json")
            run.said = json.load(open(path)) if os.path.exists(path) else {}
            path = os.path.join(folder, "hook-error.txt")
            run.trace = open(path).read() if os.path.exists(path) else ""
            return run

    def reached(self, job):
        """Return the functions that a job reaches."""
        codes = self.hook.counting()
        with Folder() as place:
            path = os.path.join(place, "hits")

            def start(folder):
                import builtins

                hits = set()
                builtins.gpurun_hit = hits.add
                end = os._exit

                def ends(code):
                    with open(path, "w") as file:
                        file.write("\n".join(hits))
                    end(code)

                os._exit = ends
                self.hook.start(codes, folder, job.orders)

            Run(job, lambda: start(place), place)
            with open(path) as file:
                return set(file.read().split("\n"))


def main(folder, every=1, seed=1, only="", jobs=""):
    import builtins

    builtins.gpurun_error = InjectedError
    hook = Hook(os.path.abspath(folder))
    names, trial, counts = hook.names(), Try(hook), {"functions": 0, "runs": 0, "noted": 0, "unreached": 0}
    counts["functions"] = len(names)
    met = set()
    for title, job in JOBS.items():
        if jobs and title not in jobs.split(","):
            continue
        untouched = trial.run(Job(job.run))
        want = trial.run(job, {})
        print(json.dumps({"job": title, "seconds": [untouched.seconds, want.seconds], "code": want.code, "raised": want.raised() if want.code else "", "problems": want.said.get("problems"),
                          "in_place": len(want.said.get("in_place") or ()), "refused": want.said.get("in_place_refused"), "applied": want.said.get("applied")}), flush=True)
        reached = trial.reached(job)
        met |= reached
        chosen = [name for name in names if name in reached and only in name and name not in WALLS and not name.startswith("wall:")]
        random.Random(seed).shuffle(chosen)
        for name in chosen[::every]:
            got = trial.run(job, hook.failing(name))
            counts["runs"] += 1
            counts["noted"] += any(WORDS in each for each in got.said.get("problems") or ()) and WORDS in got.trace
            why = wrong(job, want, untouched, got)
            if why:
                print(json.dumps({"function": name, "job": title, "wrong": why, "seconds": got.seconds, "stderr": got.err[-1500:] if only else got.err[-300:]}), flush=True)
    counts["unreached"] = len(set(names) - met)
    print(json.dumps({"counts": counts}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:])
