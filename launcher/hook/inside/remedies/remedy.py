# The remedies for a call of the root that ran out of memory, which the same process can use at
# once. Each is off until a call fails, and then on for calls as large as the smallest that failed.
import typing
import weakref


class Remedy:
    """One way for a call of the root to need less memory.

    Before each call of the root, begins() decides, and returns, whether the remedy is on for it (active).
    After a failure refusal() says, without the use of memory, whether it could help; then
    levels() turns it on, once or to several degrees, and the pass is repeated at each; keep()
    has it on for such calls from then on.
    """

    name = ""
    parts = 0  # of the batch, where the remedy divides it
    alone = False  # whether it helps where the remedies before it in the order are not on
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

    # The degrees to which it can be on: those with a higher number hold fewer bytes, and take longer.

    fits = True  # whether the lowest degree that fits is the fastest in any case

    def degree(self):
        """Return the present one."""
        return 0

    def is_used(self):
        """Return whether the remedy is on for calls of some size."""
        return min(self.size, self.longest) < float("inf")

    def degrees(self, above):
        """Return for each degree the bytes that it holds, with any number added to all, and the part of a step that it adds
        to the time, as far as is known before it is tried; [] for a remedy that is off, or that is only on or off. above: by
        how many bytes the peak of a step exceeds what is held between steps."""
        return []

    def use(self, degree):
        """Be on to a degree from the next step on."""

    def first(self, number):
        """Be on in only the first so many blocks, which were enough in an earlier run."""

    def describe(self, degree):
        """Return a degree as it is reported."""
        return {}

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
    """A remedy that is turned on in the model once, by two functions of its file: refuses and turns."""

    refuses: typing.Any
    turns: typing.Any
    turned, value = False, ""

    def refusal(self, calls):
        return super().refusal(calls) or ("" if self.turned else self.refuses(self.guard.root()))

    def turn(self):
        if not self.turned:
            self.turns(self.guard.root(), self.value, tell=self.guard.given_up, when=self.on)
            self.turned = True

    def on(self, module=None):
        """Return whether the remedy is on, in a part of the model where it acts on parts."""
        return self.active

    def arm(self, size, longest, parts=0):
        if self.turned or not self.refuses(self.guard.root()):
            self.turn()
            super().arm(size, longest)
