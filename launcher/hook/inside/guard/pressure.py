# Memory pressure without an error: in step after step the allocator has to give its cache back to the
# device and ask again, which waits for all that the device computes. It uses expandable segments then, if it may; what
# that does not end is reported.
from ..base import process, session
from ..observe import memory
from ..remedies import expandable

WINDOW = 10  # steps that are looked at together
MANY = 5  # retries in them
WINDOWS = 2  # with many retries, one after the other

# retries: those until the present window began; windows, grown: those with many retries so far, one after the other, and
# the retries in them; seen: all retries when quiet() was asked last.
state: dict = {"n": 0, "retries": 0, "windows": 0, "grown": 0, "seen": 0}


@process.guarded
def stepped(n):
    """Comes after each optimizer step that is looked at."""
    if "over" in state:
        return
    if n > state["n"] + 1:  # those before were only counted
        state["retries"] = memory.meter().now()[4]
    state["n"] = n
    if n % WINDOW:
        return
    device, _, _, _, retries = memory.meter().now()
    if device < 0:  # the CPU has no such counter
        over()
        return
    grown, state["retries"] = retries - state["retries"], retries
    if n > WINDOW:  # the first steps fill the cache
        looked(n, grown)


@process.guarded
def quiet():
    """Return whether the next steps need not be looked at: there were few retries lately."""
    if "over" in state:
        return True
    before, state["seen"] = state["seen"], memory.meter().now()[4]
    return state["seen"] - before < MANY


def looked(n, grown):
    if grown < MANY:
        state.update(windows=0, grown=0)
        return
    state.update(windows=state["windows"] + 1, grown=state["grown"] + grown)
    if state["windows"] < WINDOWS:
        return
    if not expandable.state["tried"]:
        expandable.use()
        if session.current.allocator:
            state.update(windows=0, grown=0)
            return
    process.told["pressure"] = {"retries": state["grown"], "steps": WINDOW * WINDOWS, "step": n}
    over()
    process.save()


def over():
    """Look at no more steps."""
    state["over"] = True
    session.current.when_stepped = [each for each in session.current.when_stepped if each is not stepped]
