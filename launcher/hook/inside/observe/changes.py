# What the job changes between two optimizer steps beside the optimizer: parameters, buffers, and the
# numbers of the optimizer, such as the learning rate. With another accumulation a step trains the same
# only if these change as often in each step as in the untouched job.
#
# Each interval is looked at that lies outside of the root's forward and of the optimizer's step. In every
# attempt the tensors' version counters are compared, of some tensors where there are many. Writes through
# .data leave those as they are: where gpurun has changed the batch the norms of all parameters are
# compared, too. They stay on their device until several steps are over.
import os
import sys
import time
import weakref

from ..base import process
from ..model import exclusions, listed, rootcalls
from . import huggingface, loss

SAMPLE = 4  # tensors whose versions are compared
NUMBERS = ("lr", "weight_decay", "momentum", "betas", "eps", "alpha")
GROUPS = 2  # of an optimizer whose numbers are compared
HELD = 64  # intervals until the norms are read
KINDS = "parameters", "buffers", "numbers", "data"  # data: of parameters, not seen by their versions
APART = 1  # more or less changes than that, in as many steps, are another number
PAUSE = 1.0  # seconds between two reports


class Changes:
    """Counts the intervals in which something changed. A listener of the root's calls."""

    def __init__(self, root, enabled):
        self.root, self.enabled = weakref.ref(root), enabled
        self.looks, self.steps, self.counts, self.between = True, 0, dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
        self.before, self.optimizers, self.offset, self.since_step = None, [], 0, False
        self.pid = os.getpid()
        self.parameters, self.buffers = list(listed.parameters(root)), list(listed.buffers(root))
        self.deep, self.held, self.reported, self.written = bool(process.orders().get("batch")), [], {}, 0.0
        self.content = self.deep and not exclusions.is_shared_out(root)
        self.sample = len(self.parameters) + len(self.buffers) if self.deep else SAMPLE
        self.earlier = process.orders().get("changes") or {}

    # The intervals.

    def begin(self, args, kwargs):
        if self.before is not None and self.enabled():
            guarded(self.closes)

    def end(self, output=None):
        if self.looks and self.enabled():
            guarded(self.opens, False)

    failed = end

    def stepped(self, optimizer):
        """Comes after an optimizer's step."""
        first = self.optimizers[0]() if self.optimizers else None
        if first is not optimizer:
            if not any(each() is optimizer for each in self.optimizers):
                self.optimizers.append(weakref.ref(optimizer))
            first = self.optimizers[0]()
        if first is optimizer or first is None:
            self.steps += self.looks
            if self.looks:
                self.report()
            self.looks = True
        if self.looks:
            self.opens(True)

    def opens(self, since_step):
        self.since_step, self.before = since_step, self.look()

    def quiet(self):
        """Called after a step: the next ones are not looked at where the batch is the job's own."""
        if self.content:
            return False
        self.looks, self.before = False, None
        return True

    def closes(self):
        before, self.before = self.before, None
        if before is None:
            return
        now = self.look(before[0])
        for i in range(3):
            if before[1 + i] != now[1 + i]:
                self.changed(KINDS[i], self.since_step)
        if self.content and before[1] == now[1]:
            self.held.append((before[4], now[4], self.since_step))
            if len(self.held) >= HELD:
                self.read()

    def changed(self, kind, since_step):
        self.counts[kind] += 1
        self.between[kind] += not since_step

    def look(self, offset=None):
        """Return where the sample begins, the versions, the numbers, and the norms on the device or None."""
        if offset is None:
            offset = self.offset = self.offset + self.sample
        return (
            offset, versions(self.parameters, offset, self.sample), versions(self.buffers, offset, self.sample),
            [numbers(o) for o in (each() for each in self.optimizers) if o is not None], self.norms() if self.content else None,
        )

    # The contents.

    def norms(self):
        torch = sys.modules["torch"]
        found: dict = {}
        for p in self.parameters:
            if type(p) is torch.nn.Parameter and p.layout == torch.strided and p.numel() and p.is_floating_point():
                found.setdefault((p.device, p.dtype), []).append(p.detach())
        with torch.no_grad():
            norm = getattr(torch, "_foreach_norm", None)
            return [torch.stack(list(norm(each)) if norm else [p.norm() for p in each]) for each in found.values()]

    def read(self):
        """Compares the norms that are held."""
        held, self.held = self.held, []
        torch = sys.modules["torch"]
        apart = [sum((one != other).sum().double().cpu() for one, other in zip(before, now)) for before, now, _ in held]
        for (_, _, since_step), n in zip(held, torch.stack(apart).tolist() if apart else []):
            if n:
                self.changed("data", since_step)

    # What is reported.

    def report(self, over=False):
        now, rounded = time.monotonic(), self.steps > 1 and self.steps & (self.steps - 1) == 0
        if self.steps > 8 and now - self.written < PAUSE and not rounded and not over:
            return
        self.written = now
        if self.deep:
            self.read()
            self.judge()
        said = {kind: n for kind, n in self.counts.items() if n and kind != "data"}
        if said != self.reported or rounded or over:
            self.reported = dict(said)
            loss.say(outside=dict(said, steps=self.steps))

    def judge(self):
        """Reports once that something changes more or less often than in the untouched job."""
        for kind, n in self.counts.items():
            why = self.why(kind, n)
            if why:
                loss.say(differs=why)
                leave()
                return

    def why(self, kind, n):
        """Return how a kind changes in another way than in the untouched job, "" where it does not."""
        steps, words = self.earlier.get("steps", 0), WORDS[kind]
        if kind == "numbers" and huggingface.trainers:
            return ""  # its schedule counts optimizer steps
        if steps and kind != "data":
            before = self.earlier.get(kind, 0)
            if abs(n - before * self.steps / steps) <= APART:
                return ""
            return "%s %d times in %d optimizer steps, and did so %d times in %d before" % (words, n, self.steps, before, steps)
        if self.between[kind]:
            return "%s between the micro batches of a step" % words
        if not n or kind == "numbers" and n >= self.steps - APART:
            return ""
        return "%s, and how often it does so with its own batch is not known" % words


WORDS = {
    "parameters": "the job changes parameters outside of the optimizer", "data": "the job changes parameters outside of the optimizer",
    "buffers": "the job changes buffers outside of the forward", "numbers": "the job changes the optimizer's numbers",
}

state: dict = {"changes": None}


def versions(tensors, offset, sample):
    """Return the versions of some tensors, others with each offset."""
    n = len(tensors)
    if n > sample:
        start = offset % n
        tensors = tensors[start:start + sample] + tensors[:max(0, start + sample - n)]
    try:
        return [t._version for t in tensors]
    except RuntimeError:  # made in inference mode
        return []


def numbers(optimizer):
    """Return the numbers of an optimizer's first groups."""
    return [plain(group.get(name)) for group in optimizer.param_groups[:GROUPS] for name in NUMBERS]


def plain(value):
    """Return a number as it is, and the version of a tensor, which may be on a device."""
    return (id(value), value._version) if hasattr(value, "_version") else value


def tell(optimizers):
    """Reports the numbers with which the job trains that its batch should not change, where its
    optimizers begin again."""
    if any(o.state for o in optimizers):
        return
    for o in optimizers:
        for i, group in enumerate(o.param_groups[:4]):
            found = {name: group[name] for name in NUMBERS if isinstance(group.get(name), (int, float))}
            loss.numbers({"%s of %s%s" % (name, type(o).__name__, " (group %d)" % i if i else ""): float(v) for name, v in found.items()})


def first(root, args, kwargs):
    """Begins with the root's first call, and gives the listener."""
    state["changes"] = Changes(root, sys.modules["torch"].is_grad_enabled)
    return state["changes"]


def active():
    return state["changes"] is not None


def before(optimizer):
    """Runs before each optimizer step."""
    changes = state["changes"]
    if changes is not None and changes.before is not None:
        guarded(changes.closes)


def after(optimizer):
    """Runs after each optimizer step."""
    if active():
        guarded(state["changes"].stepped, optimizer)


def quiet():
    """Called after a step. Returns whether the next ones need not be looked at."""
    return not active() or state["changes"].quiet()


def end():
    """Reports the last steps at the end of the program."""
    if active() and state["changes"].steps and state["changes"].pid == os.getpid():
        guarded(state["changes"].report, True)


def guarded(function, *args):
    """Calls a function; what goes wrong ends the observation."""
    try:
        function(*args)
    except Exception as e:
        process.problem("changes", e)
        leave()


def leave():
    """Ends the observation: what was seen stays true."""
    changes, state["changes"] = state["changes"], None
    if changes is not None:
        rootcalls.leave(changes)
