# What begins when torch is imported, and how the parts of the hook are joined: what lower parts call in upper ones. The
# parts that are imported here are read ahead.
import contextlib
import functools
import importlib
import sys

from ..base import (  # noqa: F401
    caught, ends, gate, masked, process, rank, ranout, report, room, scratch, session, stacks, wall, words)
from ..model import (  # noqa: F401
    blocks, callstate, exclusions, figures, garbage, kinds, modulestate, oldgraph, optimizerstate, places, reach, root, rootcalls,
    rootstate, rows, values)
from ..observe import (  # noqa: F401
    backward, batches, calls, changes, cycles, huggingface, inputs, lightning, loaders, lossgraph, marks, memory,
    microbatches, optimizers, pace, precision, repeats, snapshot, steps, switches, trainerloss, twice)
from ..remedies import (  # noqa: F401
    attention, autocast, checkpointing, compared, hosttensors, losscalls, losspart, offload, recompute, remedy, rungs,
    segments, split, states, visits)
from ..guard import beforeloss, evaluation, inplace, optimizerstep, pressure, proof, questions  # noqa: F401
from . import first, last  # noqa: F401


def arriving(name, _):
    """Steps aside for torch._dynamo, which keeps what it finds at its import."""
    return root.disarm()


def arrived(name, module):
    """Called when torch, or torch._dynamo, is there."""
    if name != "torch":
        root.arm()
        return
    if module is None:
        return
    rank.note(process.start["told"]["GPURUN_PROBE_FILE"], "torch")
    if process.start["role"] == "passer":  # it may fail before it trains
        told = process.start["told"]
        process.start["watch"](lambda: process.file("probe.json"), told["GPURUN_PROBE_NAMES"])
    join()
    root.arm()
    late(sys.modules["torch.utils.data.dataloader"].DataLoader, "__iter__", loaders)
    late(sys.modules["torch.optim.optimizer"].Optimizer, "__init__", steps)
    wall.alone(lambda: scratch.arrived(module))()
    wall.alone(lambda: losscalls.before_root(module))()
    if process.orders().get("hooks") and "split" in ((process.orders().get("in_place") or {}).get("rungs") or ()):
        root.evaluate(lambda *call: evaluation.call(*call))  # it is read where a model is called without gradients
    if process.orders().get("stalls"):
        wall.alone(lambda: stacks.arm(process.orders()["stalls"]))()
    if process.orders().get("record"):
        wall.alone(lambda: snapshot.arrived(module))()
    if process.orders().get("calls"):
        calls.arrived(name, module)


def late(kind, name, part):
    """Arms a part when a class's method is called for the first time."""
    plain = getattr(kind, name)

    def arms(own, self, *args, **kwargs):
        if getattr(kind, name) is first:
            setattr(kind, name, plain)
            wall.alone(lambda: part.arm(sys.modules["torch"]))()
            return wall.inner(own, getattr(kind, name), self, *args, **kwargs)
        return own(self, *args, **kwargs)

    first = functools.wraps(plain)(wall.wrapped(plain, arms))
    setattr(kind, name, first)


def join():
    """Register what lower parts call."""
    now = session.current
    now.when_first_called.append(first.first)
    now.when_arming.append(ahead)
    now.when_made.append(lambda kind: optimizerstep.wrap(kind))
    now.when_backpropagated.append(lambda: losscalls.computed())
    now.when_opening += [lambda: losscalls.stepped(), rank.start["done"]]


def ahead():
    """Have the parts of the hook read that the first step runs, and those that are needed where no memory is left. The
    job is still being set up."""
    for part in list(globals().values()):
        if isinstance(part, type(sys)) and part is not stacks:
            try:
                hasattr(part, "read")  # to look for any name has a part run
            except Exception:
                pass  # it fails once more where it is needed, and is reported there
    session.current.when_stepped.append(pressure.stepped)
    session.current.when_quiet.append(pressure.quiet)
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.utils.checkpoint")  # which the first call looks into
