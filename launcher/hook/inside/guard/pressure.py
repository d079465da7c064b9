# Memory pressure without an error: in step after step the allocator has to give its cache back to the
# device and ask again, which waits for all that the device computes. It is reported; and where gpurun
# permits steps in place, recomputed blocks are tried for ten steps, and kept if they end it and are
# faster.
import time

from ..base import process, session
from ..observe import memory
from ..remedies import expandable

WINDOW = 10  # steps that are looked at together
MANY = 5  # retries in them
WINDOWS = 2  # with many retries, one after the other
FASTER = 0.97  # of the time that a step took before

# retries: those until the present window began; seen: those when quiet() was asked last.
state: dict = {"began": 0.0, "n": 0, "retries": 0, "seen": 0, "times": []}


class Watch:
    """Decides by the retries and the time of each window of steps."""

    def __init__(self):
        self.phase, self.windows, self.retries, self.before, self.after = "watching", 0, 0, 0.0, 0.0

    def window(self, retries, seconds, can):
        """Give what is to be done now: "" for nothing, "report", "try" (report, and turn the remedy on, which
        can() says is possible), "keep", or "undo"."""
        if self.phase == "watching":
            self.windows, self.retries = (self.windows + 1, self.retries + retries) if retries >= MANY else (0, 0)
            if self.windows < WINDOWS:
                return ""
            possible = can()
            self.phase, self.before = "settling" if possible else "over", seconds
            return "try" if possible else "report"
        if self.phase == "settling":  # the allocator's blocks are of other sizes now
            self.phase = "measuring"
        elif self.phase == "measuring":
            self.phase, self.after = "over", seconds
            return "keep" if retries < MANY and seconds < FASTER * self.before else "undo"
        return ""


@process.guarded
def stepped(n):
    """Comes after each optimizer step that is looked at."""
    if "over" in state:
        return
    now = time.monotonic()
    if n > state["n"] + 1:
        state.update(times=[], retries=memory.meter().now()[4])
    elif state["began"]:
        state["times"].append(now - state["began"])
    state.update(began=now, n=n)
    if n % WINDOW:
        return
    device, _, _, _, retries = memory.meter().now()
    if device < 0:  # the CPU has no such counter
        over()
        return
    grown, state["retries"] = retries - state["retries"], retries
    times, state["times"] = sorted(state["times"]), []
    if n > WINDOW and times:  # the first steps fill the cache
        looked(state.setdefault("watch", Watch()), n, grown, times[len(times) // 2])


@process.guarded
def quiet():
    """Return whether the next steps need not be looked at: there were few retries lately, and nothing is tried."""
    if "over" in state:
        return True
    before, state["seen"] = state["seen"], memory.meter().now()[4]
    return state["seen"] - before < MANY and ("watch" not in state or state["watch"].phase == "watching")


def looked(watch, n, grown, seconds):
    guard = session.current.guard
    act = watch.window(grown, seconds, lambda: recomputation(guard) is not None)
    if act == "":
        return
    if act in ("report", "try") and not expandable.state["tried"]:
        expandable.use()
        if session.current.allocator:
            del state["watch"]
            return
    if act in ("report", "try"):
        process.told["pressure"] = {"retries": watch.retries, "steps": WINDOW * watch.windows, "step": n}
    if act == "try":
        recomputation(guard).arm(*guard.largest)
    elif act in ("keep", "undo"):
        process.told["pressure"].update(tried="checkpointing", kept=act == "keep", before_seconds=watch.before, after_seconds=watch.after)
        if act == "undo":
            next(r for r in guard.remedies if r.name == "checkpointing").disarm()
    if watch.phase == "over":
        over()
    process.save()


def over():
    """Look at no more steps."""
    state["over"] = True
    session.current.when_stepped = [each for each in session.current.when_stepped if each is not stepped]


def recomputation(guard):
    """Return the remedy that recomputes blocks, None where it is not permitted or cannot help."""
    if guard is None or guard.barred or guard.root() is None or guard.largest == (0, 0):
        return None
    found = next((r for r in guard.remedies if r.name == "checkpointing"), None)
    return found if found is not None and found.possible() else None
