# Runs jobs two ways and compares the gradients of their first optimizer steps. The file of the
# first argument has the jobs as JSON: [{"script": path, "lines": [[argument, …], [argument, …]]}, …].
# Standard output has, for each, how far the gradients of the second line are from those of
# the first, in the norm, for each step: [{"differences": [d, …], "error": ""}, …].
# A job is a process of its own, forked from one that has imported PyTorch. It is not changed:
# its optimizers note their gradients as they make a step, and end it after the last.
# Further arguments are modules to import before.
import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback
import types

import torch

STEPS = 3
torch.set_num_threads(1)
for name in sys.argv[2:]:
    importlib.import_module(name)


class Enough(BaseException):
    pass


def note():
    """Has every optimizer note its gradients."""
    steps, init = [], torch.optim.Optimizer.__init__

    def noted(optimizer, *args, **kwargs):
        init(optimizer, *args, **kwargs)
        step = type(optimizer).step

        def noting(self, *args, **kwargs):
            given = [p.grad for group in self.param_groups for p in group["params"]]
            steps.append([None if g is None else g.detach().double().flatten().clone() for g in given])
            if len(steps) == STEPS:
                raise Enough
            return step(self, *args, **kwargs)

        optimizer.step = types.MethodType(noting, optimizer)

    torch.optim.Optimizer.__init__ = noted
    return steps


def run(script, line, path):
    """Runs a job in a child, and gives its process."""
    child = os.fork()
    if child:
        return child
    try:
        with open(os.devnull, "w") as out:
            os.dup2(out.fileno(), 1)
        sys.argv, sys.path[0] = [script] + line, os.path.dirname(script)
        steps = note()
        try:
            runpy.run_path(script, run_name="__main__")
        except Enough:
            pass
        torch.save(steps, path)
        os._exit(0)
    except BaseException:
        with open(path + ".error", "w") as f:
            traceback.print_exc(file=f)
    finally:
        os._exit(1)


def norm(step):
    return sum(float((g * g).sum()) for g in step if g is not None) ** 0.5


def difference(one, other):
    """Gives ‖other - one‖/‖one‖."""
    zero = lambda a, b: a if a is not None else torch.zeros_like(b)
    apart = [zero(b, a) - zero(a, b) for a, b in zip(one, other) if a is not None or b is not None]
    return norm(apart) / max(norm(one), 1e-30)


def compare(job, folder):
    paths = [os.path.join(folder, str(n)) for n in range(2)]
    children = [run(job["script"], line, path) for line, path in zip(job["lines"], paths)]
    ends = [os.waitpid(child, 0)[1] for child in children]
    errors = [open(path + ".error").read() for path, end in zip(paths, ends) if end and os.path.exists(path + ".error")]
    if any(ends):
        return {"differences": [], "error": "\n".join(errors) or "a run ended with %s" % ends}
    one, other = (torch.load(path) for path in paths)
    if not one or not other:
        return {"differences": [], "error": "%d and %d steps" % (len(one), len(other))}
    return {"differences": [difference(a, b) for a, b in zip(one, other)], "error": ""}


stdout = os.dup(1)
os.dup2(2, 1)  # modules and jobs print
compared = []
with open(sys.argv[1], encoding="utf-8") as file:
    jobs = json.load(file)
for job in jobs:
    with tempfile.TemporaryDirectory() as folder:
        compared.append(compare(job, folder))
os.write(stdout, json.dumps(compared).encode())
