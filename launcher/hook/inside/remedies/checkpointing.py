# Activation checkpointing of a model that is running already: the repeated blocks are
# recomputed in the backward pass, one by one, or the model's own switch is turned. A model without
# either is recomputed in the parts that segments.py chooses.
import functools
import inspect
import sys
import typing
import weakref

import torch

from ..base import wall
from ..model import blocks, exclusions, forwards, listed, modulestate
from ..observe import optimizers
from . import compared, recompute, remedy, segments

VALUES = ("full",)

AGAIN = 1 / 3  # of a step's time: a second forward of all blocks

def refusal(root, value="full"):
    """Return why it cannot be turned on in this model, "" if it can."""
    excluded = exclusions.reason(root)
    if excluded:
        return excluded
    if forwards.is_recomputed(root):
        return "it is on already"
    switches, lists = parts(root)
    if not switches and not lists and not segments.by_depth(root):
        return "the model has no repeated blocks and no method for checkpointing"
    unfit = [why for each in lists for why in map(forwards.refusal, each["modules"]) if why]
    return unfit[0] if unfit else "" if switches and not lists else cached(root)


undoing = weakref.WeakKeyDictionary()  # by root: what undoes turn() or cover(), where it has put nothing but blocks before forwards


def can_cover(root):
    """Return whether other parts of the model can be recomputed than those that are."""
    if blocks.unwrap(root) not in undoing and (parts(root)[0] or forwards.is_recomputed(root) or exclusions.reason(root) or cached(root)):
        return False
    return bool(segments.by_depth(root))


def recomputed(root):
    """Return the modules that turn() recomputes, where they are the model's repeated blocks or its switches."""
    switches, lists = parts(root)
    return switches + [m for each in lists for m in each["modules"]]


def cover(root, chosen, tell=None, count=None, when=None, reads=False):
    """Recompute the chosen parts of a model, in place of its repeated blocks. Reads: none writes to its inputs."""
    model = blocks.unwrap(root)
    undoing.pop(model, bool)()
    undoing[model] = segments.wrap(chosen, lambda module: recompute.Block(tell, count, when, reads))


def cover_later(root, tell=None, count=None, when=None):
    """Choose the parts to recompute at the first call of a model."""
    model = blocks.unwrap(root)

    def run(module, forward, args, kwargs):
        if not recompute.trains(module, args, kwargs) or getattr(recompute.running, "again", False):
            return forward(module, *args, **kwargs)
        undoing.pop(module)()
        measured = wall.alone(segments.measured)(module, forward, args, kwargs)
        chosen = measured.choose() if measured is not None else []
        cover(module, chosen or segments.by_depth(module), tell, count, when, reads=bool(chosen))
        return wall.inner(forward, type(module).forward, module, *args, **kwargs)

    undoing[model] = forwards.wrap("checkpointing", [model], lambda module: run)


def turn(root, value="full", tell=None, count=None, when=None):
    """Turns it on, and returns [what was, what is]. tell(reason) is called where it has to be given up in
    a later step: the blocks then run as they would have. count() gives the number of the
    job's optimizer steps so far. Without when(), other models that the job trains, such as
    the generator of a GAN, are recomputed, too.
    """
    for other in optimizers.other_models(root) if when is None else ():
        if not refusal(other):
            turn_model(other, tell, count)
    turn_model(root, tell, count, when)
    return ["none", value]


def turn_model(root, tell=None, count=None, when=None):
    switches, lists = parts(root)
    done = []
    try:
        for switch in switches:
            done.append(lambda switch=switch: flip(switch, False))
            flip(switch, True, tell, count, when)
        modules = [m for each in lists for m in each["modules"]]
        if modules:
            block = recompute.Block
            done.append(forwards.wrap("checkpointing", unique(modules), lambda module: block(tell, count, when)))
        if not switches and modules:
            undoing[blocks.unwrap(root)] = done[-1]
        elif not switches:
            cover_later(root, tell, count, when)
    except BaseException:
        for undo in reversed(done):
            undo()
        raise


def unique(modules):
    """Leaves out the second mention of a module."""
    return list({id(m): m for m in modules}.values())


def parts(root):
    """Return the modules with a switch that can be trusted, and the lists of blocks outside them."""
    switches: list = []
    modules = listed.modules(root)
    if any(hasattr(kind, name) for kind in listed.classes(modules) for name in SUPPORTED) or any(name in m.__dict__ for m in modules for name in SUPPORTED):
        look(blocks.unwrap(root), switches)
    covered = {id(m) for switch in switches for m in switch.modules()}
    lists = [each for each in blocks.find(root) if not any(id(m) in covered for m in each["modules"])]
    return switches, lists


def look(module, found):
    """Collects the outermost modules with a switch; below them there is no other."""
    if has_switch(module):
        found.append(module)
        return
    for child in unique(child for child in module._modules.values() if child is not None):
        look(child, found)


SUPPORTED = ("supports_gradient_checkpointing", "_supports_gradient_checkpointing")  # what models call it


def has_switch(module):
    """Return whether a model of transformers or diffusers can be asked.

    It is not asked where its recomputed blocks hold statistics, which it would update
    twice, nor before it took the function to checkpoint with: it was reentrant then.
    timm's switch checkpoints the same blocks that are found here, updates statistics
    twice and runs others' hooks twice: it is never asked.
    """
    if not any(listed.has(module, name) and getattr(module, name, False) is True for name in SUPPORTED):
        return False
    setter = getattr(type(module), "_set_gradient_checkpointing", None)
    if setter is None or "gradient_checkpointing_func" not in inspect.signature(setter).parameters:
        return False
    flagged = any(hasattr(m, "gradient_checkpointing") for m in module.modules())
    return flagged and not any(modulestate.is_norm(m) for m in module.modules())


def flip(switch, on, tell=None, count=None, when=None):
    """Turns a switch, without the hook on the embeddings that reentrant checkpointing needs."""
    from torch.utils import checkpoint

    function = functools.partial(checkpoint.checkpoint, use_reentrant=False)
    if on:
        function = compared.checkpoint(function, tell, compared.Steps(count), "a block of " + type(switch).__name__)
        if when is not None:
            function = gated(function, when)
    before = [(module, dict(module.__dict__)) for module in switch.modules()]
    switch._set_gradient_checkpointing(enable=on, gradient_checkpointing_func=function)
    if not on:
        return
    for module, then in before:
        now = module.__dict__
        changed = {name for name, value in now.items() if name not in then or then[name] is not value}
        if changed:  # its copies, as for an average of weights, and its pickles are those of the job's own model
            forwards.copied_with(module, {name: then[name] for name in changed & set(then)}, changed - set(then))
    # Where stages and the blocks in them have a flag each, a block would run three times.
    for module in switch.modules():
        if is_layer(module) and any(is_layer(m) for m in module.modules() if m is not module):
            module.gradient_checkpointing = False
    if not any(getattr(m, "gradient_checkpointing", False) for m in switch.modules()):
        raise RuntimeError("the switch of %s does nothing" % type(switch).__name__)


def gated(function, when):
    """Checkpoint only the modules, and only in calls of the root, for which when() is true."""
    def call(run, *args, **kwargs):
        called = getattr(run, "func", run)
        module = called if isinstance(called, torch.nn.Module) else getattr(called, "__self__", None)
        return function(run, *args, **kwargs) if when(module) and not getattr(recompute.running, "again", False) else run(*args, **kwargs)

    return call


def is_layer(module):
    return any(base.__name__ == "GradientCheckpointingLayer" for base in type(module).__mro__)


def cached(root):
    """Return the reason where a model keeps keys and values, and no switch that knows of it.

    A cache that is an object is written to by each block, by a recomputed one, too.
    """
    if not hasattr(sys.modules.get("transformers"), "DynamicCache"):
        return ""
    for module in listed.modules(root):
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", None) is True and hasattr(module, "supports_gradient_checkpointing") and not has_switch(module):
            return "%s keeps a cache of keys and values, and has no switch that knows of it" % type(module).__name__
    return ""


class Recompute(remedy.Turned):
    """The blocks are recomputed in the backward pass, or the model's own switch is turned. Where that is
    not enough, or there are no blocks, a forward measures which parts of the model to recompute."""

    name, value, refuses, turns = "checkpointing", "full", staticmethod(refusal), staticmethod(turn)
    measured = False  # whether the parts were chosen by a measurement
    number: typing.Any = None  # how many of the parts are recomputed, from the first on; None for all
    saved: typing.Any = None  # what the forward saves, by the latest measurement
    calls: list = []  # the calls of the parts in it, in their order
    held: dict = {}  # by number, the bytes that are held then
    order: dict = {}  # by id of a module, which of the parts it is

    def refusal(self, calls):
        why, root = super().refusal(calls), self.guard.root()
        if why and self.number is not None:
            return ""
        if self.measured or not can_cover(root):
            return why
        if self.guard.failed:
            return ""
        return why if self.turned or recomputed(root) else "the model has no repeated blocks"

    def levels(self, calls):
        root = self.guard.root()
        now = recomputed(root)
        if self.number is not None:
            self.number = None
            yield
        elif remedy.Remedy.refusal(self, calls) == "" and (self.turned or now):
            self.turn()
            yield
        if self.measured or not can_cover(root):
            return
        measured = self.measure(max(calls, key=lambda call: call.size)) if self.guard.failed else None
        chosen = measured.choose(now) if measured is not None else []
        if chosen:
            cover(root, chosen, tell=self.guard.given_up, when=self.on, reads=True)
            self.measured = self.turned = True
            self.number = self.saved = None  # of other parts
            yield

    # Only as many parts as are needed.

    def first(self, number):
        modules = [m for each in blocks.find(self.guard.root()) for m in each["modules"]]
        self.order = {id(module): i for i, module in enumerate(unique(modules))}
        self.use(number)

    def on(self, module=None):
        return self.active and (self.number is None or self.order.get(id(module), 0) < self.number)

    def learn(self, measured):
        """Note what each block saves, by a forward that was measured."""
        if self.measured or not self.turned:
            return
        calls = measured.calls_of([m for each in blocks.find(self.guard.root()) for m in each["modules"]])
        order, self.calls = {}, sorted(calls, key=lambda call: call[0])
        for call in self.calls:
            order.setdefault(call[3], len(order))
        self.order, self.held, self.saved = order, {}, segments.Saved(measured.saved, measured.bytes)

    def holds(self, number):
        """Return the bytes that a forward holds where so many parts are recomputed."""
        if number not in self.held:
            self.held[number] = self.saved.needs([call for call in self.calls if self.order[call[3]] < number])
        return self.held[number]

    def degree(self):
        return len(self.order) if self.number is None else self.number

    def degrees(self, above):
        n = len(self.order)
        return [(self.holds(number), AGAIN * number / n) for number in range(n + 1)] if self.saved is not None and n and self.is_used() else []

    def use(self, degree):
        self.number = degree if degree < len(self.order) else None

    def describe(self, degree):
        return {"recomputed": degree, "blocks": len(self.order)}

    def reaches_further(self):
        """Other models, such as the generator of a GAN, hold what their forward saved before this one ran out."""
        return any(not refusal(other) for other in optimizers.other_models(self.guard.root()))

    def measure(self, call):
        """Return what a forward of the call saves, None where it cannot be measured."""
        measure = segments.Measured(self.guard.root())
        found = segments.tried(measure, lambda: self.guard.measured(call, measure))
        if found is None:
            self.guard.collect()
        return found
