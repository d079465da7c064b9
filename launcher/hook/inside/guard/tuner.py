# Which of the exact ways to do a step is the fastest that fits, once a step has run out of memory: at first the fewest
# recomputed blocks, or moved tensors, that fit by what was measured; then other states, one after the other. It decides
# by the seconds, peaks and failures that it is given, and has no clock.
import itertools

MARGIN = .03  # of the room, that stays free
FASTER = .97  # of the time of the best state: what is predicted to take longer is not tried
TRIALS, SHARE = 12, .02  # the most states that are tried for their time, and the most steps for that as a part of all
ENOUGH, MOST = 3, 9  # steps in a state that its time is known by, and the most while they differ in shape
NOISE = 1.2  # of the time of the best state: fewer blocks that seem to take longer than that do
LEAST = .25  # how far less, or more, the difference between two states may be than was measured of the blocks
SHORT = 2  # steps that were short of memory, after which as little is held as can be
ROWS = 64  # of the table


class Option:
    """What can be changed: its degrees, each as (bytes that it holds, what it adds to the time as a part of a step).
    fits: its lowest degree that fits is the fastest, and needs no comparison of times."""

    def __init__(self, name, degrees, fits=True):
        self.name, self.degrees, self.fits = name, degrees, fits


class Tuner:
    """Chooses the state of the next step. A state is a tuple with a degree for each option. times: whether states are
    compared by their time, and not only fitted to the memory; steps: those that remain of the run, None where that is
    not known."""

    def __init__(self, options, state, times=True, steps=None, rows=()):
        self.options, self.state, self.best, self.times = options, tuple(state), tuple(state), times
        self.allowed = float("inf") if steps is None else int(SHARE * steps)
        self.rows, self.size, self.room = list(rows), (0, 0), 0
        self.failed = float("inf")  # the bytes that the options held in the smallest state that needed too much memory
        self.renew()

    def grow(self, by):
        """Begin anew, with inputs so many times as large: what is held is taken to be in proportion."""
        for option in self.options:
            option.degrees = [(int(held * by), cost) for held, cost in option.degrees]
        self.failed *= by
        self.renew()

    def renew(self):
        self.peaks, self.seconds = {}, {}  # by state; by state and shape
        self.trials = self.spent = self.stepped = self.shorts = 0
        self.over, self.fitting, self.best = False, True, self.state

    # What is given.

    def step(self, shape, size, seconds, peak, room, short=False):
        """A step in the present state ended well; return the state of the next one. shape: what steps that can be
        compared have in common; size: of its inputs; seconds: of one sample, None where they are not known; room: the
        most bytes that the process may hold; short: the allocator had to search for memory."""
        before, self.size = self.size, (max(size[0], self.size[0]), max(size[1], self.size[1]))
        if self.size != before != (0, 0):
            self.grow(max(self.size[0] / max(before[0], 1), 1))
        if self.over:
            return self.state
        self.stepped, self.room = self.stepped + 1, room
        self.spent += not self.fitting
        self.peaks[self.state] = max(self.peaks.get(self.state, 0), peak)
        if seconds is not None:
            self.seconds.setdefault(self.state, {}).setdefault(shape, []).append(seconds)
        self.note()
        if not short:
            return self.chosen()
        self.shorts += 1
        less = [s for s in self.states() if self.held(s) <= self.held(self.state) - MARGIN * self.room]
        most = max if self.shorts < SHORT else min
        return self.lacks("short of memory", most(less or [self.state], key=self.held))

    def fails(self, state):
        """Memory ran out in the present state: the step was done again in another one, which remains."""
        self.lacks("out of memory", tuple(state))

    # The choice.

    def lacks(self, why, state):
        """Leave the present state, which needs too much memory, for another one."""
        self.row(self.state)["outcome"] = why
        if state == self.state:
            self.end()
            return self.state
        self.failed = min(self.failed, self.held(self.state))
        if self.held(self.best) >= self.failed:
            self.best = state
        return self.go(state)

    def chosen(self):
        """Return the state of the next step after one that ended well."""
        found = self.fewer()
        if found is not None:
            self.adopt()
            self.fitting = True
            return self.go(found)
        if self.stepped < MOST and not self.known():
            return self.state
        self.adopt()
        self.fitting = False
        more = self.times and self.shorts < SHORT and self.trials < TRIALS and self.spent + ENOUGH <= self.allowed
        found = self.faster() if more else None
        if found is None:
            self.end()
            return self.state
        self.trials += 1
        return self.go(found)

    def go(self, state):
        if state != self.state:
            self.state, self.stepped = state, 0
        return self.state

    def end(self):
        self.go(self.best)
        self.over = True
        for row in self.rows:
            row["kept"] = False
        self.row(self.state)["kept"] = True

    def fewer(self):
        """Return the state with the lowest degrees of what is fitted that fits, None where that is the present one."""
        if self.shorts >= SHORT:
            return None
        found = [s for s in self.states() if s not in self.peaks and self.alike(s, self.state) and self.fits(s)]
        found = [s for s in found if all(b <= a for a, b in zip(self.state, s))]
        return min(found, key=self.cost, default=None)

    def faster(self):
        """Return the state that is predicted to be fastest, None where none is faster enough."""
        found = [s for s in self.states() if not self.is_slower(s) and self.predicted(s) <= FASTER and self.fits(s)]
        return min(found, key=self.predicted, default=None)

    def is_slower(self, state):
        """Return whether a state was tried, or does more of what is fitted than one that fits."""
        return any(self.alike(s, state) and self.cost(s) <= self.cost(state) for s in self.peaks)

    def alike(self, one, other):
        """Return whether states differ only in what is fitted."""
        return all(a == b or option.fits for option, a, b in zip(self.options, one, other))

    def known(self):
        """Return whether the time of the present state can be compared."""
        best = self.seconds.get(self.best, {})
        own = [len(found) for shape, found in self.seconds.get(self.state, {}).items() if shape in best]
        return not self.times or max(own, default=0) >= ENOUGH

    def adopt(self):
        """Have the present state be the best, if it is. What was chosen to fit does less: noise does not decide."""
        ratio = self.ratio(self.state, self.best)
        if self.fitting and (ratio is None or ratio < NOISE) or ratio is not None and ratio < 1:
            self.best = self.state
        if ratio is None and not self.fitting:
            self.trials = TRIALS  # steps are too different to be compared

    def ratio(self, one, other):
        """Return how much longer a state takes than another, in steps of the same shapes; None if that is not known."""
        a, b = self.seconds.get(one, {}), self.seconds.get(other, {})
        found = [middle(a[shape]) / middle(b[shape]) for shape in a if shape in b and middle(b[shape]) > 0]
        return middle(found) if found else None

    # Predictions.

    def states(self):
        """Return the states that are not known to need too much memory."""
        found = itertools.product(*(range(len(option.degrees)) for option in self.options))
        return [s for s in found if self.held(s) < self.failed]

    def held(self, state):
        return sum(option.degrees[n][0] for option, n in zip(self.options, state))

    def cost(self, state):
        """Return the time of a state, as far as it is known before states are tried: 1 is that of no option."""
        return 1 + sum(option.degrees[n][1] for option, n in zip(self.options, state))

    def predicted(self, state):
        """Return the time of a state in proportion to that of the best, by what was measured of one like it."""
        alike = [s for s in self.seconds if self.alike(s, state)]
        near = min(alike, key=lambda s: abs(self.cost(s) - self.cost(state)), default=self.best)
        measured = self.ratio(near, self.best) or self.cost(near) / self.cost(self.best)
        return measured * self.cost(state) / self.cost(near)

    def fits(self, state):
        """Return whether a state is predicted to fit: by the peak of the present one, which was measured."""
        present, more = self.held(self.state), self.held(state) - self.held(self.state)
        others = [s for s in self.peaks if self.held(s) != present]
        if self.failed < float("inf"):  # more is needed than was measured
            if self.held(state) > self.failed - MARGIN * self.room or not others and more > (self.failed - present) / 2:
                return False
        if others:
            near = min(others, key=lambda s: abs(self.held(s) - present))
            slope = (self.peaks[near] - self.peaks[self.state]) / (self.held(near) - present)
            more *= min(max(slope, LEAST), 1 / LEAST)
        return self.peaks[self.state] + more <= (1 - MARGIN) * self.room

    # The table.

    def row(self, state):
        """Return the row of a state, the latest of the table."""
        degrees = {option.name: n for option, n in zip(self.options, state)}
        found = next((r for r in reversed(self.rows) if r["state"] == degrees and r["size"] == self.size[0]), None)
        if found is None:
            found = {"state": degrees, "size": self.size[0], "steps": 0, "seconds": 0.0, "peak_bytes": 0}
            found.update(outcome="", kept=False)
            self.rows = self.rows[1 - ROWS:] + [found]
        return found

    def note(self):
        row, seconds = self.row(self.state), [middle(found) for found in self.seconds.get(self.state, {}).values()]
        row.update(steps=row["steps"] + 1, peak_bytes=self.peaks[self.state])
        row["seconds"] = middle(seconds) if seconds else 0.0


def middle(numbers):
    return sorted(numbers)[len(numbers) // 2]
