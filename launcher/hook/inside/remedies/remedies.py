# The remedies for a call of the root that ran out of memory, which the same process can use at
# once. Each is off until a call fails, and then on for calls as large as the smallest that failed.
import time
import typing
import weakref

from ..base import ranout, session
from ..model import rootstate, rows
from ..observe import optimizers, repeats
from . import checkpointing, offload, segments, split


class Remedy:
    """One way for a call of the root to need less memory.

    Before each call of the root, begins() decides, and returns, whether the remedy is on for it (active).
    After a failure refusal() says, without the use of memory, whether it could help; then
    levels() turns it on, once or to several degrees, and the pass is repeated at each; keep()
    has it on for such calls from then on.
    """

    name = ""
    parts = 0  # of the batch, where the remedy divides it
    evaluate: typing.Any = None  # or a method like run, for calls without gradients
    run: typing.Any = None  # or a method run(call, root, args, kwargs), which calls the root by call(root, args, kwargs)

    def __init__(self, guard):
        self.guard = weakref.proxy(guard)
        self.active, self.size, self.longest = False, float("inf"), float("inf")

    def begins(self, size, longest):
        self.active = size >= self.size or longest >= self.longest
        return self.active

    def refusal(self, calls):
        """Return why the remedy cannot help these calls, "" if it can."""
        return "it is on already" if all(self.name in call.remedies for call in calls) else ""

    def levels(self, calls):
        """Yield after each degree to which the remedy was turned on, the weakest first."""
        self.turn()
        yield

    def turn(self):
        """Turn the remedy on in the model, for the calls in which it is active."""

    def reaches_further(self):
        """Return whether the remedy needs less memory where it is on from the beginning of the run."""
        return False

    def arm(self, size, longest, parts=0):
        """Use the remedy for calls of these sizes."""
        self.size, self.longest = min(self.size, size), min(self.longest, longest)

    def keep(self, calls):
        """Use the remedy for calls as large as these."""
        for call in calls:
            self.arm(call.size, call.longest)


class Turned(Remedy):
    """A remedy that is turned on in the model once, by a part with refusal() and turn()."""

    part: typing.Any = None
    turned, value = False, ""

    def refusal(self, calls):
        return super().refusal(calls) or ("" if self.turned else self.part.refusal(self.guard.root()))

    def turn(self):
        if not self.turned:
            self.part.turn(self.guard.root(), self.value, tell=self.guard.given_up, when=lambda: self.active)
            self.turned = True

    def arm(self, size, longest, parts=0):
        if self.turned or not self.part.refusal(self.guard.root()):
            self.turn()
            super().arm(size, longest)


    def possible(self):
        """Return whether the remedy is on for no call, and can be turned on."""
        return self.size == self.longest == float("inf") and (self.turned or not self.part.refusal(self.guard.root()))

    def disarm(self):
        """Use the remedy for no call."""
        self.size, self.longest, self.active = float("inf"), float("inf"), False


class Recompute(Turned):
    """The blocks are recomputed in the backward pass, or the model's own switch is turned. Where that is
    not enough, or there are no blocks, a forward measures which parts of the model to recompute."""

    name, part, value = "checkpointing", checkpointing, "full"
    measured = False  # whether the parts were chosen by a measurement

    def refusal(self, calls):
        why, root = super().refusal(calls), self.guard.root()
        if self.measured or not checkpointing.can_cover(root):
            return why
        if self.guard.failed:
            return ""
        return why if self.turned or checkpointing.recomputed(root) else "the model has no repeated blocks"

    def levels(self, calls):
        root = self.guard.root()
        now = checkpointing.recomputed(root)
        if Remedy.refusal(self, calls) == "" and (self.turned or now):
            self.turn()
            yield
        if self.measured or not checkpointing.can_cover(root):
            return
        measured = self.measure(max(calls, key=lambda call: call.size)) if self.guard.failed else None
        chosen = measured.choose(now) if measured is not None else []
        if chosen:
            checkpointing.cover(root, chosen, tell=self.guard.given_up, when=lambda: self.active, reads=True)
            self.measured = self.turned = True
            yield

    def reaches_further(self):
        """Other models, such as the generator of a GAN, hold what their forward saved before this one ran out."""
        return any(not checkpointing.refusal(other) for other in optimizers.other_models(self.guard.root()))

    def measure(self, call):
        """Return what a forward of the call saves, None where it cannot be measured."""
        measure = segments.Measured(self.guard.root())
        try:
            return self.guard.measured(call, measure)
        except Exception as e:
            if not (ranout.is_one(e) or isinstance(e, rootstate.Unrepeatable) or measure.differentiates):
                raise
        self.guard.collect()
        return None


class Offload(Turned):
    """What the forward saves for the backward pass is kept in host memory."""

    name, part, value = "offload-activations", offload, "cpu"


class InParts(Remedy):
    """The root runs in parts of the batch, which are halved until they fit."""

    name = "split"

    def __init__(self, guard):
        super().__init__(guard)
        self.split = split.Split(session.current.root() or guard.root(), guard.root())
        self.split.halves, self.split.halved = True, self.halved

    @property
    def parts(self):
        return self.split.parts[True]

    def refusal(self, calls):
        if "turned" in split.state:
            return "it is on already"
        return super().refusal(calls) or next((why for why in map(self.unfit, calls) if why), "")

    def unfit(self, call, known=True):
        """Return why a call cannot run in parts. Known: as far as that is known without running the model."""
        try:
            answer = self.split.answer(split.Call(self.guard.root(), call.args, call.kwargs, True), known)
        except (split.Unfit, rows.Unknown) as e:
            return str(e)
        # Its outputs are part of the loss that is backpropagated.
        drawn = answer is not None and answer.draws and call.outputs
        return "the model draws other random numbers in parts" if drawn else ""

    def levels(self, calls):
        # To see whether rows depend on each other some are run, with random numbers of its own.
        with self.guard.unchanged(calls):
            unfit = next((why for why in (self.unfit(call, False) for call in calls) if why), "")
        if unfit:
            self.guard.say_unfit("split: " + unfit)
            return
        self.turn()
        yield

    def turn(self):
        self.split.parts[True] = max(self.split.parts[True], 2)

    def arm(self, size, longest, parts=0):
        super().arm(size, longest)
        self.split.parts[True] = max(self.split.parts[True], parts, 2)

    def run(self, plain, root, args, kwargs):
        return self.split.run(plain, args, kwargs)

    def halved(self, call, phase, failure, seconds):
        """Comes after a part did not fit in a call that already ran in parts."""
        if not session.current.repeating:
            repeats.done(phase, self.name, seconds, failure, self.size if call.grad else 0, self.longest if call.grad else 0, self.split.parts[call.grad])

    # Calls without gradients, as in an evaluation.

    evaluated = float("inf")  # elements of the smallest that ran out of memory

    def evaluate(self, plain, root, args, kwargs):
        """Call the root without gradients, in parts where memory runs out."""
        if self.split.parts[False] > 1 and split.elements(args, kwargs) >= self.evaluated:
            return self.split.run(plain, args, kwargs)
        numbers = split.numbers(self.guard.known.devices)
        try:
            return plain(root, *args, **kwargs)
        except BaseException as e:
            failure, trace = e, e.__traceback__
        if not ranout.is_one(failure) or "turned" in split.state:
            raise failure
        return self.evaluate_again(plain, args, kwargs, numbers, failure, trace)

    def evaluate_again(self, plain, args, kwargs, numbers, failure, trace):
        guard, began = self.guard, time.monotonic()
        why: typing.Any = None
        try:
            guard.check(failure, [])
        except Exception as e:
            why = e
        if why is None:
            with guard.repeating("evaluation", failure):
                split.set_numbers(guard.known.devices, numbers)
                self.split.parts[False] = max(self.split.parts[False], 2)
                try:
                    output = self.split.parted(plain, args, kwargs)
                except BaseException as e:
                    why = e
        if why is not None:
            guard.give_up("forward", failure, why, trace)
        self.evaluated = min(self.evaluated, split.elements(args, kwargs))
        repeats.done("forward", self.name, time.monotonic() - began, failure, parts=self.split.parts[False])
        return output


KINDS = {kind.name: kind for kind in (Recompute, InParts, Offload)}
