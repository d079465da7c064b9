# What the parts of the hook share about this process: one object, current.
import typing


class Session:
    """The state that several parts read, and the lists in which upper parts register what lower ones call."""

    def __init__(self):
        self.speaks = False  # whether this process reports
        self.trains = False  # whether it trains a model, or is about to
        self.replicas = 1  # of the model in this process
        self.root: typing.Any = lambda: None  # a weak reference to the module that is trained, once it was called
        self.guard: typing.Any = None  # what repeats its passes (inplace.py), where that is permitted
        self.call: typing.Any = None  # or call(plain, root, args, kwargs), which makes the calls of the root
        self.memory: typing.Any = None  # the measurements of its memory (memory.py)
        self.steps = 0  # optimizer steps so far
        self.quiet = 0  # optimizer steps to come that are only counted, since all before were alike and there is memory
        self.called = False  # whether the root was called in the current one of them
        self.phase = "train"  # what the process does between two steps: train, eval or save
        self.sources: list = []  # of frameworks: functions that return the job's own step, all steps, and the latest loss; each or None
        self.repeating = False  # whether a pass is done again now
        self.allocator = ""  # "expandable", once that was turned on because memory ran out
        self.active: frozenset = frozenset()  # the remedies in place that were on in the current step
        self.asked = False  # whether questions are asked of the ending process: calls of its root are not the job's
        self.away: typing.Any = None  # or away(optimizer), the bytes of its states that are not on the device that they say
        self.turned: set = set()  # the knobs of remedies that are on from the first call
        # Functions that are called
        self.when_first_called: list = []  # with the root and its arguments, before its first forward
        self.when_arming: list = []  # once an optimizer is made for the first time
        self.when_made: list = []  # with the class of each optimizer that is made
        self.when_phase_changes: list = []  # where an evaluation begins, or a checkpoint is saved
        self.when_measured: list = []  # where the next optimizer step is to be looked at
        self.when_opening: list = []  # before the first optimizer step
        self.when_quiet: list = []  # with nothing, after a step: each returns whether its part needs no look at the next steps
        self.when_repeated: list = []  # with the entry of the report, where a pass was done in another way
        self.when_stepped: list = []  # with the number of an optimizer step that is looked at, after it
        self.when_backpropagated: list = []  # where the first backward pass begins


current = Session()
