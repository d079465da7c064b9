# Which parts of a model are recomputed where its repeated blocks are not enough: modules that are
# called once in a forward, and runs of a Sequential's children, chosen so that what is saved for the
# backward pass, together with what the largest part saves again, is least.
#
# A forward that saves nothing measures the bytes: each tensor that PyTorch would save is counted, and
# let go. Where none was run, the stages nearest to the root are taken.
import functools
import inspect
import itertools

import torch

from ..base import ranout, wall
from ..model import blocks, callstate, exclusions, forwards, garbage, places, rootstate, values
from . import recompute

LEAST = .9  # of what the forward saves: parts that need more are not worth a second run
GAIN = 1.25  # of its inputs' bytes: a part that saves less is not worth a second run
SHARES = [2 ** (-k / 6) for k in range(1, 25)]  # of what the forward saves: the most that may be saved at once


class Part:
    """What is recomputed as one: a module, or the children first to last of a Sequential."""

    def __init__(self, module, first=None, last=None):
        self.module, self.first, self.last = module, first, last


class Run:
    """One call of a module in the forward that was measured."""

    def __init__(self, module, parent, start, given, inputs):
        self.module, self.parent, self.start, self.end, self.inputs = module, parent, start, start, inputs
        self.versions, self.writes = versions(given), False  # whether it writes to its inputs
        self.calls: list = []  # in it


class Saved:
    """What a forward saves, and what it would save where parts of it are recomputed."""

    def __init__(self, saved=(), bytes=()):
        self.saved, self.bytes = list(saved), dict(bytes)  # storages, as they were saved; the bytes of each

    def size(self, keys):
        return sum(self.bytes[key] for key in keys)

    def between(self, start, end):
        return set(self.saved[start:end])

    def needs(self, chosen):
        """Return the most bytes that are saved at once, if what is saved from start to end is saved again for each of chosen."""
        kept, size, most, at = set(), 0, 0, 0
        for start, end, inputs, _ in sorted(chosen, key=lambda each: each[0]):
            fresh = (self.between(at, start) | inputs) - kept
            kept, size, at = kept | fresh, size + self.size(fresh), end
            most = max(most, size + self.size(self.between(start, end) - kept))
        return max(most, size + self.size(self.between(at, len(self.saved)) - kept))


class Measured(Saved):
    """Counts what a forward saves, as a context around it."""

    def __init__(self, root):
        from torch.multiprocessing.reductions import StorageWeakRef

        super().__init__()
        self.torch, self.reference, self.references = torch, StorageWeakRef, {}
        self.times, self.runs, self.stack = {}, [], []  # how often each module was called; the outermost calls
        self.differentiates = False  # whether the forward itself runs a backward pass
        self.whole = {id(root), id(blocks.unwrap(root))}
        self.own = {self.storage(t) for t in itertools.chain(root.parameters(), root.buffers())}

    def storage(self, tensor):
        """Return a number that no other storage has for as long as this lives, None where there is none."""
        try:
            storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
            reference = self.reference(storage)
            size = storage.nbytes()
        except Exception:
            return None
        self.references.setdefault(reference.cdata, reference)
        self.bytes[reference.cdata] = size
        return reference.cdata

    def pack(self, tensor):
        key = self.storage(tensor)
        if key is not None and key not in self.own:
            self.saved.append(key)

    def unpack(self, key):
        self.differentiates = True
        raise RuntimeError("nothing is saved in this forward")

    def __enter__(self):
        Module = self.torch.nn.Module
        plain = self.plain = Module.__call__

        def __call__(module, *args, **kwargs):
            run = self.begin(module, args, kwargs)
            try:
                return plain(module, *args, **kwargs)
            finally:
                self.finish(run, args, kwargs)

        Module.__call__ = __call__
        recompute.running.again = True  # what is recomputed already is measured, too
        self.hooks = self.torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self.hooks.__enter__()
        return self

    def __exit__(self, *exception):
        self.hooks.__exit__(*exception)
        recompute.running.again = False
        self.torch.nn.Module.__call__ = self.plain

    def begin(self, module, args, kwargs):
        given = values.tensors((args, kwargs))
        run = Run(module, self.stack[-1].module if self.stack else None, len(self.saved), given, {self.storage(t) for t in given} - self.own - {None})
        self.times[id(module)] = self.times.get(id(module), 0) + 1
        (self.stack[-1].calls if self.stack else self.runs).append(run)
        self.stack.append(run)
        return run

    def finish(self, run, args, kwargs):
        self.stack.pop()
        run.end = len(self.saved)
        run.writes = run.versions != versions(values.tensors((args, kwargs)))

    # The choice.

    def calls_of(self, modules):
        """Return the calls of these modules, as (start, end, inputs, the module's id)."""
        wanted, found, todo = set(map(id, modules)), [], list(self.runs)
        while todo:
            run = todo.pop()
            if id(run.module) in wanted:
                found.append((run.start, run.end, run.inputs, id(run.module)))
            else:
                todo += run.calls
        return found

    def of(self, modules):
        """Return the peak where these modules are recomputed."""
        return self.needs(self.calls_of(modules))

    def choose(self, besides=()):
        """Return the parts to recompute, [] where that would save little; besides: what is recomputed now."""
        whole = self.size(set(self.saved))
        plans = [self.under(self.runs, 0, whole * share)[0] for share in SHARES]
        peaks = [self.needs(plan) for plan in plans]
        least = min(peaks)
        if least > LEAST * (self.of(besides) if besides else whole):
            return []
        fewest = min((plan for plan, peak in zip(plans, peaks) if peak <= 1.03 * least), key=len)
        return [part for _, _, _, part in fewest]

    def under(self, runs, kept, most):
        """Return parts of these calls, as (start, end, inputs, part), and the bytes that are kept then. With what
        is kept before them, the parts save at most so many bytes each. What is kept grows along the forward."""
        found, at = [], None
        for run in runs:
            kept += self.size(self.between(run.start if at is None else at, run.start))
            at = run.end
            saves, given = self.size(self.between(run.start, run.end)), self.size(run.inputs)
            if kept + saves <= most and not run.writes and self.may(run):
                worth = saves > GAIN * given
                found += [(run.start, run.end, run.inputs, Part(run.module))] if worth else []
                kept += given if worth else saves
                continue
            divides = is_sequential(run.module) and self.times[id(run.module)] == 1 and [id(each.module) for each in run.calls] == list(map(id, run.module))
            inner, after = (self.divided if divides else self.under)(run.calls, kept, most)
            found += inner
            kept = after if run.calls else kept + saves
        return found, kept

    def may(self, run):
        return self.times[id(run.module)] == 1 and id(run.module) not in self.whole and fits(run.module)

    def divided(self, calls, kept, most):
        """Divide the children of a Sequential into parts, with the least that is kept at the end."""
        best = [(kept, [])]
        for end in range(1, len(calls) + 1):
            inner, after = self.under([calls[end - 1]], best[-1][0], most)
            options = [(after, best[-1][1] + inner)]
            for first in range(end - 2, -1, -1):
                start, stop, inputs = calls[first].start, calls[end - 1].end, calls[first].inputs
                saves, (before, parts) = self.size(self.between(start, stop)), best[first]
                if saves > most:
                    break
                if before + saves <= most and saves > GAIN * self.size(inputs) and not calls[first].writes and all(map(self.may, calls[first:end])):
                    options.append((before + self.size(inputs), parts + [(start, stop, inputs, Part(calls[first].parent, first, end - 1))]))
            best.append(min(options, key=lambda option: option[0]))
        return best[-1][1], best[-1][0]


def versions(given):
    return list(map(places.version, given))


def fits(module):
    return not forwards.refusal(module)


def is_sequential(module):
    """Return whether a module does nothing but call its children, one after the other."""
    plain = torch.nn.Sequential
    return isinstance(module, plain) and fits(module) and inspect.unwrap(type(module).forward) is inspect.unwrap(plain.forward)


def measured(module, forward, args, kwargs):
    """Return what a call of a model saves, None where it cannot be measured without a trace."""
    if exclusions.barred(module):
        return None
    measure = Measured(module)
    call = tried(measure, lambda: callstate.Call(rootstate.Root(module), forward, args, kwargs))
    if call is None:
        return None
    found = tried(measure, lambda: call.measured(measure, lambda plain, root, args, kwargs: plain(root, *args, **kwargs)))
    rootstate.close(call.state.log)
    if found is None:
        garbage.collect()
    return found


def tried(measure, run):
    """Return run(), None where that runs out of memory or cannot be done without a trace."""
    try:
        return run()
    except Exception as e:
        if not (ranout.is_one(e) or isinstance(e, places.Unrepeatable) or measure.differentiates):
            raise
    return None


def by_depth(root):
    """Return the parts of a model of which nothing was measured: the stages nearest to the root."""
    module = blocks.unwrap(root)
    if is_sequential(module) and not stages_of(module):
        found = runs_of(module)
        return found if len(found) > 1 else []
    while True:
        stages = stages_of(module)
        if len(stages) != 1 or is_sequential(stages[0]):
            break
        module = stages[0]
    found = []
    for stage in stages:
        inner = [each for each in stages_of(stage) if fits(each)] if is_sequential(stage) else []
        if inner:
            found += map(Part, inner)
        elif is_sequential(stage) and len(stage) > 3:
            found += runs_of(stage)
        elif fits(stage):
            found.append(Part(stage))
    return found if len(found) > 1 else []


def stages_of(module):
    """Return the children that have children, those of a list each alone."""
    found = []
    for _, child in blocks.children(module):
        if blocks.is_block(child):
            found.append(child)
        elif blocks.children(child):
            found += stages_of(child)
    return found


def runs_of(sequential):
    """Divide a Sequential into runs, each of which begins at a layer with a matrix of weights."""
    starts = [0] + [i for i, child in enumerate(sequential) if i and any(p.dim() > 1 for p in child.parameters())]
    every = max(round(len(starts) ** .5), 1)
    starts = starts[::every] + [len(sequential)]
    return [Part(sequential, first, end - 1) for first, end in zip(starts, starts[1:]) if end - first > 1]


def wrap(parts, make):
    """Have the parts recomputed; returns the function that undoes it."""
    groups = {}
    for part in parts:
        if part.first is not None:
            groups.setdefault(id(part.module), (part.module, []))[1].append(part)
    whole = [part.module for part in parts if part.first is None]
    undo = []
    try:
        if whole:
            undo.append(forwards.wrap("checkpointing", whole, make))
        if groups:
            undo.append(forwards.wrap("checkpointing", [module for module, _ in groups.values()], lambda module: Grouped(module, groups[id(module)][1], make)))
    except BaseException:
        for each in undo:
            each()
        raise
    return lambda: [each() for each in undo]


class Grouped:
    """Runs the forward of a Sequential, and the children of each part as one block."""

    def __init__(self, module, parts, make):
        children = list(module)
        # A Sequential that is no part of the model holds the children of a part.
        self.parts = {part.first: (part.last, group, make(group)) for part in parts for group in [torch.nn.Sequential(*children[part.first:part.last + 1])]}
        self.children = list(map(id, children))

    def __call__(self, module, forward, args, kwargs):
        if len(args) != 1 or kwargs or list(map(id, module)) != self.children:
            return forward(module, *args, **kwargs)
        x, at, children = args[0], 0, list(module)
        while at < len(children):
            last, group, block = self.parts.get(at, (at, None, None))
            x = wall.inner(forward, children[at], x) if group is None else block(group, functools.partial(wall.part, forward), (x,), {})
            at = last + 1
        return x
