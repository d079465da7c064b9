# Out of memory in place: where a forward or backward pass of the root runs out of memory, what
# it holds is let go, and the same pass is done again with less memory. The job's own code does
# not see the error. Where it cannot be done exactly, the job's error goes up as it was.
#
# The parts: callstate.py and rootstate.py have what a call of the root changes, oldgraph.py what its graph holds,
# remedy.py how it needs less memory, caught.py whether the job handles the error itself, and repeats.py what is reported.
import contextlib
import functools
import gc
import operator
import os
import time
import typing
import weakref

import torch

from ..base import caught, meters, process, ranout, room, session, wall, wrapping
from ..model import blocks, callstate, exclusions, forwards, garbage, oldgraph, places, rootcalls, rootstate
from ..observe import repeats, twice
from ..remedies import checkpointing, compared, expandable, rungs, segments
from . import beforeloss, proof, tuning


MOST_CALLS = 64  # calls of the root that one backward pass may follow
MOST_OUTPUTS = 64
GRADIENT = 8 << 20  # bytes of an output whose gradient is always kept; of others where it is at most this part of the peak
PART = 64

# While the process could have twice the memory that it needed so far, calls as large as earlier ones are not followed.
SETTLED = 16  # calls that are followed in any case
EVERY = 32  # calls after which the memory is looked at again
AMPLE = "the process could have twice the memory that it had needed until then, so its calls were not followed"

FAILED = "gpurun's hook failed in this process"

GRAD = operator.attrgetter("grad")
NONE: frozenset = frozenset()


def first(root):
    """Begin to guard the root's calls and the backward passes through them, where gpurun's orders
    permit it. Runs before the root's first forward."""
    orders = process.orders().get("in_place")
    if not orders or not process.orders().get("hooks") or exclusions.compiled(root):
        return
    target = guarded_module(root)
    guard = session.current.guard = Guard(target, orders, exclusions.barred(root))
    guard.only_forward = any(base.__name__ == "DeepSpeedEngine" for base in type(root).__mro__)
    if orders.get("tune"):
        guard.follows = tuning.Tuning(guard)
    if orders.get("before_loss"):
        guard.foresee = beforeloss.foresee
    for entry in orders.get("armed") or ():
        guard.arm(entry)
    if orders.get("armed"):
        expandable.use()
    session.current.when_quiet.append(guard.quiet)
    if target is root:
        session.current.call = guard.call
    else:
        compiling = exclusions.recording(guard.torch)
        forwards.call(target, lambda module, plain, args, kwargs: plain(module, *args, **kwargs) if compiling() else guard.call(plain, module, args, kwargs))
    guard.install()


def guarded_module(root):
    """Return the module whose calls are repeated: what DistributedDataParallel and the like are
    around. Lightning calls its module for the whole training step there, which logs, too: there it
    is the largest module in it."""
    module = blocks.unwrap(root)
    if module is not root and any(base.__name__ == "LightningModule" for base in type(module).__mro__):
        module = max(module.children(), key=blocks.weight, default=module)
    return module


class Guard:
    """Repeats the calls of one module, and backward passes through them.

    Its parts for others: remedies, which gpurun permits, in their order; foresee, None or a
    function(call, output) that returns whether a forward pass that ended well is to be done again
    with a remedy before its output is handed over; run(), which calls the root as the active
    remedies do.
    """

    def __init__(self, root, orders, barred=""):
        self.torch, self.root, self.known, self.barred = torch, weakref.ref(root, wall.alone(self.gone)), rootstate.Root(root), barred
        self.remedies = [rungs.IN_PLACE[name](self) for name in orders.get("rungs") or () if name in rungs.IN_PLACE]
        self.pending, self.busy, self.pid = [], "", os.getpid()  # busy: the pass under way
        self.engine: typing.Any = None
        self.failure, self.current, self.why = None, None, ""  # the latest that a remedy was found for; the call under way; why it cannot be repeated
        self.foresee, self.largest = None, (0, 0)  # largest: the elements and the longest dimension of the largest call's inputs
        self.hooks_allowed = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", lambda: True)
        self.undo = []  # of install()
        self.failed = False  # whether memory ran out in the pass that is repeated
        self.nested = False  # whether the backward pass under way has run another one
        self.searched = True  # whether all objects were looked at for garbage in this repeat
        self.unfit = ""  # why the latest remedy could not be turned on, where that was seen by running the model
        self.only_forward = False  # DeepSpeed's backward pass reduces gradients in hooks
        self.proven: set = set()  # the remedies under which two runs of a forward were the same
        self.follows: typing.Any = None  # what looks for the fastest way to do steps (tuning.py), where that is permitted
        self.tuning: typing.Any = None  # it, while it does
        self.resting, self.rested = False, 0  # whether calls are not followed, and how many were not since memory was looked at

    def install(self):
        """Have the backward passes of this process come here, and hooks on tensors noticed."""
        torch = self.torch
        engine, missed = torch.autograd.backward, wall.alone(self.missed)
        self.engine = engine
        self.undo = [rootstate.watch_attributes(torch)]

        @functools.wraps(engine)
        def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
            more = {"retain_graph": retain_graph, "create_graph": create_graph, "inputs": inputs}
            if grad_variables is not None:
                more["grad_variables"] = grad_variables
            if session.current.quiet:
                try:
                    return self.engine(tensors, grad_tensors, **more)
                except BaseException as e:
                    missed(e)
                    raise
            return wall.call(self.engine, self.backward, wall.ALL, tensors, grad_tensors, **more)

        torch.autograd.backward = backward
        self.undo.append(lambda: setattr(torch.autograd, "backward", self.engine))
        self.register_hook = torch.Tensor.register_hook
        for name in ("register_hook", "retain_grad"):
            self.undo.append(self.notice(name))

    def notice(self, name):
        """Note where the job hangs a hook on a tensor of a graph."""
        plain, hooked = getattr(self.torch.Tensor, name), wall.alone(self.hooked)

        def method(tensor, *args, **kwargs):
            if not tensor.is_leaf:
                hooked()
            return plain(tensor, *args, **kwargs)

        return wrapping.put(self.torch.Tensor, name, functools.wraps(plain)(method))

    def remove(self):
        """Undo install(): passes are no longer repeated."""
        while self.undo:
            self.undo.pop()()
        self.barred = self.barred or "it was removed"

    def gone(self, _):
        """The model no longer exists: do not keep its parameters alive."""
        self.remove()
        self.known.forget()

    def hooked(self):
        for call in self.calls() + ([self.current] if self.busy == "forward" and self.current is not None else []):
            call.hooked = True

    def arm(self, entry):
        """Use a remedy, and those before it, from these sizes on."""
        names = [r.name for r in self.remedies]
        if entry["rung"] in names:
            at = names.index(entry["rung"])
            for remedy in self.remedies[at if self.remedies[at].alone else 0:at + 1]:
                wall.alone(remedy.arm)(entry.get("elements") or float("inf"), entry.get("longest") or float("inf"), entry.get("parts") or 0)
                if remedy.name == entry["rung"] and entry.get("blocks"):
                    wall.alone(remedy.first)(entry["blocks"])

    def calls(self):
        """Return the calls whose graphs are alive, in their order."""
        found = []
        for each in self.pending:
            call = each()
            if call is not None and call.args is not None:
                found.append(call)
        return found

    # The forward pass.

    def call(self, plain, root, args, kwargs):
        """Call the root."""
        if self.busy or os.getpid() != self.pid or not self.hooks_allowed():
            return plain(root, *args, **kwargs)
        if not self.torch.is_grad_enabled():
            return self.evaluate(plain, root, args, kwargs)
        if self.resting and self.rests(args, kwargs):
            try:
                return plain(root, *args, **kwargs)
            except BaseException as e:
                self.lost(None, e)
                raise
        call = self.current = self.begin(plain, args, kwargs)
        output = failure = None
        self.busy = "forward"
        try:
            output = plain(root, *args, **kwargs) if call is not None and not call.remedies else self.run(plain, root, args, kwargs)
        except BaseException as e:
            failure = e if call is not None and ranout.is_one(e) else None
            if failure is None:
                self.lost(call, e)
                raise
            wall.raises(plain, e)
        finally:
            self.busy = ""
        if failure is not None or self.foresee is not None and call is not None and self.foresee(call, output):
            phase, kept, output = "forward" if failure is not None else "loss", [output], None
            output = self.forward_again(call, phase, failure, kept)
        self.current = None
        if call is not None:
            self.returned(call, output)
            if self.known.calls >= SETTLED and self.known.calls % (SETTLED // 2) == 0:
                self.rest()
        return output

    def rest(self):
        """Do not follow calls as large as earlier ones from now on, if the process has much more memory than it needs."""
        unused = all(r.size == r.longest == float("inf") for r in self.remedies)
        if unused and self.failure is None and session.current.steps > 1 and wall.alone(self.ample)():
            self.resting, self.rested, self.why = True, 0, AMPLE

    def ample(self):
        """Return whether the process could have as much memory again as it has needed so far."""
        for device in self.known.devices or [self.torch.device("cpu")]:
            left = room.free(device)
            if left is not None and left < meters.of(device).read()[1]:
                return False
        return True

    def rests(self, args, kwargs):
        """Return whether a call is not followed."""
        self.rested += 1
        if self.rested >= EVERY:
            self.rested, self.resting = 0, wall.alone(self.ample)()
        if self.resting:
            size, longest = callstate.extent(callstate.tensors_in([*args, kwargs] if kwargs else args))
            if size <= self.largest[0] and longest <= self.largest[1]:
                return True
        self.resting, self.why, self.known.next = False, "", self.known.calls + 1  # what was not followed is read anew
        return False

    def quiet(self):
        """Called after a step. Returns whether the next ones need not be followed."""
        if self.barred:
            return True
        self.rested = EVERY  # the memory is looked at before the next call that is followed
        return self.resting and not self.calls()

    def evaluate(self, plain, root, args, kwargs):
        """Call the root without gradients."""
        for remedy in self.remedies:
            if remedy.evaluate is not None:
                return remedy.evaluate(plain, root, args, kwargs)
        return plain(root, *args, **kwargs)

    def begin(self, plain, args, kwargs):
        """Return the call that begins, None for one that cannot be repeated."""
        if wall.state["off"] and not self.barred:
            self.stay()
        self.why = self.barred
        if self.barred:
            return None
        if twice.forward():
            self.why = twice.FORWARD
            return None
        try:
            return Call(self.known, plain, args, kwargs, self.begins)
        except rootstate.Unrepeatable as e:
            self.why = str(e)
        except Exception as e:
            self.why = unlooked(e)
        return None

    def begins(self, call):
        """Decide which remedies are on in a call of its size."""
        call.guard, size, longest = self, call.size, call.longest
        if (size, longest) > self.largest:
            self.largest = size, longest
            if self.follows is not None:
                wall.alone(self.follows.grew)()
        names = NONE
        for remedy in self.remedies:
            if size >= remedy.size or longest >= remedy.longest or remedy.active:
                if remedy.begins(size, longest):
                    names |= {remedy.name}
        if names:
            repeats.active(names)
        if self.tuning is not None:
            wall.alone(self.tuning.called)(call, names)
        call.remedies, call.outputs, call.gradients = names, [], {}

    def stay(self):
        """Repeat no pass any more, since the hook has failed. Remedies that are on stay on, in all calls."""
        self.barred = FAILED
        for remedy in self.remedies:
            remedy.active = min(remedy.size, remedy.longest) < float("inf")

    def run(self, plain, root, args, kwargs):
        """Call the root as the active remedies do."""
        for remedy in self.remedies:
            if remedy.active and remedy.run is not None:
                output = remedy.run(plain, root, args, kwargs)
                wall.gives(plain, output)
                return output
        return plain(root, *args, **kwargs)

    def lost(self, call, error):
        """A call has raised what is not answered here."""
        self.current, self.resting = None, False
        if call is not None:
            rootstate.close(call.state.log)
        elif self.why and ranout.is_one(error):
            repeats.refused("forward", self.why)

    @contextlib.contextmanager
    def using(self, names):
        """Have the remedies of these names be on, and no others."""
        before = [(r, r.active) for r in self.remedies]
        for remedy in self.remedies:
            remedy.active = remedy.name in names
        try:
            yield
        finally:
            for remedy, active in before:
                remedy.active = active

    def peak(self):
        """Return the most that was given so far, in bytes; 0 where nothing measures it."""
        return meters.of(self.known.devices[0]).read()[1] if self.known.devices else 0

    def returned(self, call, output):
        """Comes after the call: a backward pass may follow."""
        try:
            call.ended(output)
        except rootstate.Unrepeatable as e:
            call.never = self.why = str(e)
        except Exception as e:
            call.never = self.why = unlooked(e)
        if len(self.pending) >= MOST_CALLS:
            self.pending = [each for each in self.pending if each() is not None][1 - MOST_CALLS:]
        self.pending.append(weakref.ref(call))

    def forward_again(self, call, phase, failure, kept):
        """Return the output of a call that is done again with a remedy. Kept has the output of one
        that ended well; where no remedy helps, the call is made as the job makes it."""
        began, why, tried = time.monotonic(), None, call.remedies
        trace = failure.__traceback__ if failure is not None else None
        self.failed = failure is not None
        try:
            self.check(failure, [call])
            behind = call.state.norms_behind(norm_in(failure))
            helping = self.helping([call])
        except Exception as e:
            why = e
        if why is not None:
            if failure is None:
                return kept[0]
            self.give_up(phase, failure, why, trace, tried)
        kept.clear()
        wall.let_go(call.own)
        with self.repeating(phase, failure):
            for remedy, names in self.each(helping, [call]):
                output, why = self.attempt(call, names, behind)
                if self.freed(why):
                    output, why = self.attempt(call, names, call.state.norms_behind(None))
                if why is None or not ranout.is_one(why):
                    break
                tried = names
                garbage.release(why)
                behind = call.state.norms_behind(None)
            else:
                why = why or rootstate.Unrepeatable(self.barred or self.unfit or "no remedy could be turned on")
            if why is not None and failure is None:
                refuse(phase, why)
                return self.plain_again(call)
        if why is not None:
            self.give_up(phase, failure, why, trace, tried)
        wall.gives(call.own, output)
        self.done(phase, failure, remedy, names, [call], began)
        return output

    def plain_again(self, call):
        """Return the output of a call that ended well, and whose output was let go."""
        output, why = self.attempt(call, NONE, call.state.norms_behind(None), proves=False)
        if why is not None:
            raise why
        wall.gives(call.own, output)
        return output

    def attempt(self, call, names, behind, proves=True):
        """Return the output of a repeated call, and None; or None, and the exception."""
        output = present = proven = None
        if proves and names not in self.proven:
            proven = proof.Proof(self, [call])
            why = proven.first(names)
            if why is not None:
                return None, why
        self.busy = "forward"
        try:
            with self.using(names), rootstate.lent(*behind) as norms:
                present = call.rewind()
                output = self.run(call.plain, self.root(), call.args, call.kwargs)
                present.check()
            norms.check()
            self.works()
            if callstate.sequences() != call.sequence:
                raise rootstate.Unrepeatable("the forward pass communicates")
            if proven is not None:
                proven.second([callstate.with_bases(callstate.tensors_in(output))])
                self.proven.add(names)
        except BaseException as e:
            output = None
            if present is not None:
                wall.alone(present.put_back)()
            return None, e
        finally:
            self.busy = ""
        return output, None

    def measured(self, call, measure):
        """Repeat a call within a context that measures it, and leave nothing of that; return the context."""
        self.busy = "forward"
        try:
            with self.using(()):
                return call.measured(measure, self.run)
        finally:
            self.busy = ""

    def saves(self, measured):
        """Note what a forward saves."""
        for remedy in self.remedies:
            if isinstance(measured, segments.Measured) and isinstance(remedy, checkpointing.Recompute):
                wall.alone(remedy.learn)(measured)

    @contextlib.contextmanager
    def unchanged(self, calls):
        """Raise where the body changes what is in reach of the model."""
        proven = proof.Proof(self, calls)
        before = proven.read()
        yield
        proven.unchanged(before)

    def helping(self, calls):
        """Return the remedies that can help these calls. Raises where there is none."""
        whys = [(r, r.refusal(calls)) for r in self.remedies]
        found = [r for r, why in whys if not why]
        if not found:
            raise rootstate.Unrepeatable("; ".join("%s: %s" % (r.name, why) for r, why in whys) or "there is no remedy")
        return found

    def each(self, helping, calls):
        """Yield each remedy after it was turned on further, and the names of those that are on:
        one that did not suffice stays on for the next."""
        names = frozenset().union(*(call.remedies for call in calls))
        for remedy in helping:
            try:
                for _ in remedy.levels(calls):
                    yield remedy, names | {remedy.name}
            except rootstate.Unrepeatable as e:  # the model is not as it was: no pass may be repeated any more
                self.barred = self.barred or str(e)
                return
            except Exception as e:
                wall.failed(e)
                continue
            names |= {remedy.name}

    def say_unfit(self, why):
        """Note why a remedy could not be turned on, where the model had to be run to see that."""
        self.unfit = why

    def check(self, failure, calls):
        """Raises where the calls may not be repeated."""
        if self.barred or wall.state["off"]:
            raise rootstate.Unrepeatable(self.barred or FAILED)
        if self.torch.is_anomaly_enabled():
            raise rootstate.Unrepeatable("PyTorch looks for anomalies")
        by = caught.by_a_caller() if failure is not None else ""
        if by:
            raise rootstate.Unrepeatable("the job handles the error itself (%s)" % by)
        hook = hooked(self.torch, self.known.modules)
        if hook:
            raise rootstate.Unrepeatable(hook)
        for call in calls:
            call.check()

    def works(self):
        """Raises where the hook has failed since: what it has noted is not complete."""
        if wall.state["off"]:
            raise rootstate.Unrepeatable(FAILED)

    @contextlib.contextmanager
    def repeating(self, phase, failure):
        """Let go what the failed pass holds; what memory is measured meanwhile is that of no step."""
        repeats.begin(phase)
        self.searched = not self.known.devices
        try:
            if failure is not None:
                garbage.clear(failure)
                self.collect()
            expandable.use()
            yield
        finally:
            repeats.end()

    def collect(self):
        """Give memory back that nothing refers to. To look at all objects takes longer than a step: on a
        GPU only young ones are, as those of a failed pass are, until a repeat runs out of memory."""
        if self.searched:
            garbage.collect()
        else:
            gc.collect(1)

    def freed(self, why):
        """Return whether a repeat ran out of memory that garbage held. It is given back now."""
        if self.searched or not ranout.is_one(why):
            return False
        self.searched = True
        garbage.clear(why)
        return garbage.collect()

    def give_up(self, phase, failure, why, trace, tried=()):
        """Raise the job's own error as it was. Tried has the names of the remedies that did not suffice."""
        if not isinstance(why, Exception):
            raise why  # somebody ends the process
        refuse(phase, why, [r.name for r in self.remedies if r.name in tried and not wall.alone(r.reaches_further)()])
        raise wall.raising(failure).with_traceback(trace)

    def given_up(self, reason):
        """Called where a recomputed block turns out to compute something else."""
        self.barred = self.barred or str(reason)

    def done(self, phase, failure, remedy, names, calls, began):
        self.failure = failure or self.failure
        for call in calls:
            call.remedies = names
        for each in self.remedies:
            if each.name in names:
                each.keep(calls)
        repeats.done(phase, remedy.name, time.monotonic() - began, failure, remedy.size, remedy.longest, remedy.parts)

    # The backward pass.

    def backward(self, engine, tensors, grads, **more):
        """Run torch.autograd.backward, engine."""
        calls = [] if self.busy or os.getpid() != self.pid else self.calls()
        if not calls:
            if self.busy == "forward" and self.current is not None:
                self.current.never = "the forward pass runs a backward pass"
            self.nested = True
            return self.unguarded(tensors, grads, more, engine)
        for call in calls:
            call.gradients.clear()
        before, random, failure = self.gradients(), self.numbers(), None
        self.busy, self.nested = "backward", False
        try:
            engine(tensors, grads, **more)
        except BaseException as e:
            if not ranout.is_one(e) and not compared.is_difference(e):
                raise
            failure = e
        finally:
            self.busy = ""
        if failure is not None and compared.is_difference(failure):
            self.give_up("backward", self.failure or failure, failure, None)
        elif failure is not None:
            self.backward_again(tensors, calls, before, random, failure, more)
            wall.gives(engine, None)
        elif not (more["retain_graph"] or more["create_graph"]):
            self.pending = []
            for call in calls:
                if call.gradients:
                    call.let_go()
                else:
                    self.pending.append(weakref.ref(call))

    def numbers(self):
        """Return the state of the random numbers of Python and NumPy, and of PyTorch's."""
        shared, own = [], []  # no comprehensions, which are calls: this runs in each step
        for _, read in places.READERS.values():
            if read:
                shared.append(read())
        for draw in self.known.generators:
            own.append(draw())
        return shared, own

    def unguarded(self, tensors, grads, more, engine):
        """Run a backward pass that follows from no call that can be repeated."""
        try:
            engine(tensors, grads, **more)
        except BaseException as e:
            self.missed(e)
            raise

    def missed(self, error):
        """Note that memory ran out in a backward pass that cannot be repeated."""
        if self.why and not self.busy and ranout.is_one(error):
            repeats.refused("backward", self.why)

    def gradients(self):
        """Return which tensor each parameter's gradient is, and its version, None for none; None where they cannot be read."""
        try:
            grads = list(map(GRAD, self.known.parameters))
            none = [None] * len(grads)
            # To compare a tensor with None takes microseconds.
            if grads and grads[0] is None and grads[-1] is None and grads == none:
                return none
            try:
                return list(zip(map(id, grads), map(rootstate.VERSION, grads)))
            except AttributeError:  # some have none
                return [None if g is None else (id(g), g._version) for g in grads]
        except Exception as e:
            wall.failed(e)
            return None

    def backward_again(self, tensors, calls, before, random, failure, more):
        """Do the part of a backward pass again that was not done."""
        began, trace, why, tried = time.monotonic(), failure.__traceback__, None, NONE
        losses = [tensors] if self.torch.is_tensor(tensors) else list(tensors)
        self.failed = True
        try:
            self.check_backward(random, more)
            walk = oldgraph.Walk(losses, calls)
            used = walk.used_calls()
            tried = frozenset.intersection(*(call.remedies for call in used))
            for call in used:
                call.seen(walk.used[id(call)])
            self.check(failure, used)
            walk.below_outputs(self.known.parameters)
            self.left(before)
            compares = walk.functions
            helping = self.helping(used)
        except Exception as e:
            why = e
        if why is not None:
            self.give_up("backward", failure, why, trace, tried)
        with self.repeating("backward", failure):
            walk.cut(losses)
            del walk, losses, tensors
            self.collect()
            for remedy, names in self.each(helping, used):
                why = self.replay(used, names, before, compares)
                if self.freed(why):
                    why = self.replay(used, names, before, compares)
                if why is None or not ranout.is_one(why):
                    break
                tried = names
                garbage.release(why)
            else:
                why = why or rootstate.Unrepeatable(self.barred or self.unfit or "no remedy could be turned on")
        if why is not None:
            self.give_up("backward", failure, why, trace, tried)
        self.done("backward", failure, remedy, names, used, began)
        for call in used:
            call.let_go()

    def check_backward(self, random, more):
        """Raises where this backward pass may not be repeated."""
        if more["retain_graph"] or more["create_graph"] or more["inputs"] is not None:
            raise rootstate.Unrepeatable("the backward pass keeps the graph, or is for some tensors only")
        if self.only_forward:
            raise rootstate.Unrepeatable("DeepSpeed reduces gradients in the backward pass")
        if self.nested:
            raise rootstate.Unrepeatable("the backward pass runs another one in it")
        if any(hasattr(p, "main_grad") for p in self.known.parameters):
            raise rootstate.Unrepeatable("the backward pass adds to main_grad")
        if not all(map(operator.eq, random[0], self.numbers()[0])) or not all(map(self.torch.equal, random[1], self.numbers()[1])):
            raise rootstate.Unrepeatable("the backward pass draws random numbers")
        if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in self.known.parameters):
            raise rootstate.Unrepeatable("a hook follows each parameter's gradient")

    def left(self, before):
        """Return the parameters that have not got their gradients yet."""
        if before is None or self.known.is_stale() or len(self.known.parameters) != len(before):
            raise rootstate.Unrepeatable("the model has other parameters than at the beginning of the backward pass")
        found = []
        for p, version in zip(self.known.parameters, before):
            if not p.requires_grad:
                continue
            g = p.grad
            if g is not None and g.layout != self.torch.strided:
                raise rootstate.Unrepeatable("gradients are sparse")
            if g is not None and g._base is not None and any(before):
                raise rootstate.Unrepeatable("gradients are views of one bucket")
            if (None if g is None else (id(g), g._version)) == version:
                found.append(p)
        if not found:
            raise rootstate.Unrepeatable("every parameter has its gradient")
        return found

    def replay(self, calls, names, before, compares):
        """Repeat calls, and the backward pass from their outputs to the leaves that have no gradient
        yet. Return None, or the exception. Compares: whether the failed pass may have changed what
        the forward pass changes, too."""
        outputs, gradients, proven = [], [], None
        if names not in self.proven:
            proven = proof.Proof(self, calls)
            why = proven.first(names)
            if why is not None:
                return why
        self.busy = "backward"
        try:
            left = self.left(before)
            repeated = self.outputs_again(calls, names, compares)
            if proven is not None:
                proven.second(repeated)
                self.proven.add(names)
            for call, made in zip(calls, repeated):
                for i, gradient in call.gradients.items():
                    outputs.append(made[i])
                    gradients.append(gradient)
                    # It has what comes from outputs that follow from this one, too: that is not to be added again.
                    self.register_hook(made[i], lambda _, whole=gradient: whole)
            del made, repeated
            done = self.others(left)
            self.engine(outputs, gradients, inputs=left)
            # DistributedDataParallel writes to all of them at the end.
            self.works()
            if callstate.sequences() is None and any(a is not b or v != w for (a, v), (b, w) in zip(done, self.others(left))):
                raise rootstate.Unrepeatable("the backward pass writes to gradients in its own way")
        except BaseException as e:
            return e
        finally:
            self.busy = ""
        return None

    def others(self, left):
        """Return the gradients of all other parameters, with their versions."""
        skipped = set(map(id, left))
        return [(p.grad, None if p.grad is None else p.grad._version) for p in self.known.parameters if id(p) not in skipped]

    def outputs_again(self, calls, names, compares):
        """Return the outputs of repeated calls, and leave the model as it is now."""
        presents, found = [], []
        try:
            for call in calls:
                presents.append(call.rewind())
                sequence = callstate.sequences()
                with self.using(names), self.torch.enable_grad(), rootstate.cast_as(call.state.cast), rootstate.lent(self.known.statistics()):
                    found.append(callstate.with_bases(callstate.tensors_in(self.run(call.plain, self.root(), call.args, call.kwargs))))
                if callstate.sequences() != sequence:
                    raise rootstate.Unrepeatable("the forward pass communicates")
                if call.returned:
                    call.same_outputs(found[-1])
            if compares:
                presents[0].compare()
        finally:
            while presents:
                presents.pop().put_back()
        return found


class Call(callstate.Call):
    """One call of the root that a backward pass may follow. Its graph keeps it alive."""

    guard: typing.Any
    remedies: frozenset
    outputs: list
    gradients: dict
    never, hooked = "", False  # why it cannot be repeated; whether the job hung a hook on a tensor of its graph
    returned = False

    def ended(self, output):
        """Comes after the call: the gradients of its outputs will be seen."""
        self.returned = True
        self.state.returned()
        if callstate.sequences() != self.sequence:
            raise rootstate.Unrepeatable("the forward pass communicates")
        found = [output] if type(output) in self.known.kinds and not output._is_view() else callstate.with_bases(callstate.tensors_in(output))
        if len(found) > MOST_OUTPUTS:
            raise rootstate.Unrepeatable("the model has more than %d outputs" % MOST_OUTPUTS)
        most = GRADIENT
        for i, tensor in enumerate(found):
            self.outputs.append(weakref.ref(tensor))
            node = tensor.grad_fn
            if node is None:
                continue
            size = tensor.numel() * tensor.element_size()
            if size > most == GRADIENT:
                most = max(GRADIENT, self.guard.peak() // PART)  # what is asked costs time
            node.metadata.setdefault(oldgraph.KEY, {})[tensor.output_nr] = (self, i)
            self.guard.register_hook(tensor, wall.guarded(receiver(self, i, size <= most)))

    def seen(self, met):
        """Raises where the gradient of an output that the losses follow from was not seen, or is
        not the job's own."""
        if self.never:
            raise rootstate.Unrepeatable(self.never)
        if self.hooked:
            raise rootstate.Unrepeatable("the job has a hook on a tensor of the graph")
        if any(t.requires_grad for t in self.given):
            raise rootstate.Unrepeatable("an input of the model has a gradient")
        for i in met:
            if i not in self.gradients:
                later = " or of a later call of the model" if len(self.guard.calls()) > 1 else ""
                raise rootstate.Unrepeatable("memory ran out in the backward pass of the loss%s, before an output of the model had its gradient" % later)
            if self.gradients[i] is None:
                raise rootstate.Unrepeatable("the gradient of an output is too large to be kept")
        self.gradients = {i: g for i, g in self.gradients.items() if i in met}

    def let_go(self):
        """Comes after the backward pass: the graph may live on."""
        self.args = self.kwargs = self.given = self.containers = self.state = self.own = None
        self.gradients = {}

    def check(self):
        """Raises where the call cannot be repeated."""
        if self.never:
            raise rootstate.Unrepeatable(self.never)
        super().check()

    def same_outputs(self, made):
        """Raises where a repeated call gives other outputs, as far as the job still has those."""
        if len(made) != len(self.outputs):
            raise rootstate.Unrepeatable("the repeated call has other outputs")
        with torch.no_grad():
            for was, now in zip(self.outputs, made):
                was = places.alive(was())
                if was is None or was._version:
                    continue
                if was.shape != now.shape or was.dtype != now.dtype:
                    raise rootstate.Unrepeatable("the repeated call has other outputs")
                if was.is_floating_point() and was.device.type == "cpu" and not torch.equal(was, now) and not torch.allclose(was, now, rtol=1e-4, atol=1e-6, equal_nan=True):
                    raise rootstate.Unrepeatable("the repeated call has other outputs")


def refuse(phase, why, tried=()):
    """Report why a pass was not repeated, or that the hook failed."""
    if not isinstance(why, rootstate.Unrepeatable) and not compared.is_difference(why) and not ranout.is_one(why):
        wall.failed(why)
    wall.alone(repeats.refused)(phase, why, tried)


def unanswered(value, trace):
    """Report why an error that ends the process was not answered, where no pass of the guarded module was under way."""
    guard, error = session.current.guard, ranout.reason(value)
    root = guard.root() if guard is not None else None
    if root is None or error is None or "in_place_refused" in process.told:
        return
    frames = ranout.frames_of(trace)
    called = [frame.f_locals.get("self") for frame in reversed(frames) if frame.f_code.co_name == "_call_impl"]
    if root in called:
        return
    phase, name = rootcalls.phase_in(frames), type(root).__name__
    if called:
        phase, where = "forward", "%s, another model than the first one, %s" % (type(called[0]).__name__, name)
    elif phase == "backward":
        where = "a backward pass that does not follow from %s alone" % name
    else:
        where = "the job's own code"
    if phase != "optimizer":
        repeats.refused(phase or "unknown", "memory ran out in %s: only passes of the model that is called first are done again" % where)


def unlooked(error):
    """Return why a call cannot be repeated that could not be looked at."""
    if not ranout.is_one(error):
        wall.failed(error)
    return "the call could not be looked at: %s" % type(error).__name__


def receiver(call, i, keeps):
    """Return a hook that hands a call the gradient of an output, None for one that is not kept."""
    reference = weakref.ref(call)

    def receive(gradient):
        call = reference()
        if call is not None:
            call.gradients[i] = gradient if keeps else None

    return receive


def norm_in(failure):
    """Return the module whose statistics a failure kept from being computed, None for none."""
    if failure is None:
        return None
    frames = ranout.frames_of(failure.__traceback__)
    for i, frame in enumerate(frames[:-1]):
        if frame.f_code.co_name == "batch_norm" and (i == 0 or frame.f_code.co_filename.endswith("functional.py")):
            return first_module(frames[i + 1])
    return None


def first_module(frame):
    """Return the first module among the variables of a frame that has ended: self in a method of one.

    Not by f_locals: up to Python 3.12 the frame keeps that dictionary when it is cleared, and with it
    the activations of the failed pass.
    """
    return next((value for value in gc.get_referents(frame) if isinstance(value, torch.nn.Module)), None)


def hooked(torch, modules):
    """Return which hook of others would run twice, "" for none."""
    everywhere = torch.nn.modules.module
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks"):
        if any(not exclusions.is_harmless(hook) for hook in getattr(everywhere, name, {}).values()):
            return "a hook on all modules would run again"
    for module in modules:
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, getattr(module, "_backward_pre_hooks", {})):
            if any(not exclusions.is_harmless(hook) for hook in hooks.values()):
                return "a hook on %s would run again" % type(module).__name__
    return ""
