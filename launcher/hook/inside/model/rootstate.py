# The state that a call of the root changes beside its outputs: random numbers, statistics,
# attributes of modules. A call that is repeated begins with the state of the first one.
#
# Attributes that a forward sets are noted as it sets them. Other places are compared around the
# first calls, around ever fewer later ones, and around those that are larger than all before: what
# changed is read before each call; what did not is compared after a failure.
import contextlib
import operator
import weakref

import torch

from . import listed, modulestate, places, reach

Unrepeatable, version = places.Unrepeatable, places.version

VERSION = operator.attrgetter("_version")


def versions(tensors):
    try:
        return list(map(VERSION, tensors))
    except RuntimeError:  # some were made in inference mode
        return list(map(places.version, tensors))


FIRST = 2  # calls around which all places are compared


class Root:
    """Knows what the root's forward changes. It keeps no module alive."""

    def __init__(self, root):
        self.torch, self.root, self.kinds = torch, weakref.ref(root), frozenset((torch.Tensor, torch.nn.Parameter))
        self.calls, self.largest, self.unreadable = 0, 0, ""
        self.written = False  # whether the forward writes to parameters
        self.last: list = []  # all places after the latest call around which they were compared
        self.next = 64  # the number of the call around which all places are compared again
        self.found: dict = {}  # by key the places that forwards were seen to change
        self.base, self.noted = [], set()  # all places, as last read; the keys of what was set since
        self.random = [places.Random("Python"), places.Random("NumPy")]
        self.places = list(self.random)  # those that are read before each call
        places.watch()
        self.renew()

    def renew(self):
        """Lists the modules, parameters and buffers."""
        root = self.root()
        modules = listed.modules(root)
        self.refs = [weakref.ref(m) for m in modules]
        self.parameters, self.buffers = list(listed.parameters(root)), list(listed.buffers(root))
        self.tensors = [t for t in self.parameters + self.buffers if not t.is_inference()]
        self.counted = [t for t in self.buffers if not t.is_inference()]  # around later calls; parameters are compared when a pass is repeated
        self.devices = sorted({t.device for t in self.tensors if t.device.type == "cuda"}, key=str)
        self.generators = generators(self.devices)
        self.last = []

    def forget(self):
        """Keep nothing of the model, which no longer exists."""
        self.refs, self.parameters, self.buffers, self.tensors, self.counted = [], [], [], [], []
        self.found, self.base, self.places, self.last = {}, [], [], []

    @property
    def modules(self):
        return [m for m in (ref() for ref in self.refs) if m is not None]

    @property
    def norms(self):
        return [m for m in self.modules if modulestate.is_plain_norm(m)]

    def statistics(self):
        """Return the names of the statistics of each norm."""
        return {norm: [n for n, b in norm._buffers.items() if b is not None] for norm in self.norms}

    def is_stale(self):
        """Return whether the model has other modules, parameters or buffers than those listed."""
        root = self.root()
        pairs = (listed.modules(root), self.modules), (listed.parameters(root), self.parameters), (listed.buffers(root), self.buffers)
        return any(list(map(id, now)) != list(map(id, then)) for now, then in pairs)

    def before(self, size):
        """Return the state before a call with inputs of so many elements."""
        self.calls += 1
        whole = self.calls <= FIRST or size > self.largest or self.calls == self.next
        if whole:
            for place in self.random:  # so that it is known how a backward pass is seen to draw numbers
                place.read()
            if self.calls == self.next:
                self.next *= 4
            self.largest = max(self.largest, size)
            if self.calls > 1 and self.is_stale():
                self.renew()
            # What changed since the latest call is the job's: it is not to be taken for this call's.
            self.learn((p, v) for p, v in self.base if p.changed(v, self.noted))
        return Beginning(self, whole)

    def all_places(self):
        walk = reach.Walk(self.modules, self.norms)
        self.unreadable = walk.unreadable()
        return walk.list()

    def learn(self, changed):
        """Has places read before each call from now on, by those and their values before a change."""
        for place, value in changed:
            self.find(place).learn(value, place)

    def find(self, place):
        """Have a place read before each call; return the one of this key that is."""
        if place.key not in self.found and place not in self.random:
            self.places.append(place)
        return self.found.setdefault(place.key, place)

    def is_unknown(self, place):
        return place.key not in self.found or isinstance(place, places.Numbers)

    def changes(self, read, noted):
        """Return the words for a place that changed, of those in read that are not known; noted has the keys of what was set."""
        for place, value in read:
            known = self.found.get(place.key)
            if known is None and place.changed(value, noted) or known is not None and isinstance(place, places.Numbers) and place.changed(value, noted) - known.names:
                return place.words()
        return ""


class Beginning:
    """The state before one call."""

    def __init__(self, known, whole):
        self.known, self.whole, self.number, self.base = known, whole, known.calls, None
        self.numbers, self.values = [], []
        for draw in known.generators:  # no comprehensions, which are calls: this runs in each step
            self.numbers.append(draw())
        self.cast = autocast(known.torch)
        self.tensors = known.tensors if whole else known.counted
        self.versions = list(map(VERSION, self.tensors))
        self.switched = places.switched[0]
        reads, copies = known.places, 0
        if whole:
            found, copies = {p.key for p in reads}, places.SMALL
            known.last = known.last or known.all_places()
            reads = reads + [p for p in known.last if isinstance(p, places.Numbers) or p.key not in found and p.kind != "_parameters"]
        for place in reads:
            self.values.append((place, place.read(copies)))
        self.log = places.Log()

    def returned(self):
        """Runs after a call that returned: learns what it changed."""
        self.log.close()
        known, changed = self.known, []
        drawn = False
        for place, value in self.values[:len(known.random)]:
            drawn = drawn or (value.read() != value.state if type(value) is places.Sketch else place.changed(value))
        if self.whole:
            known.written = known.written or any(t._version != v for t, v in zip(self.tensors, self.versions) if isinstance(t, known.torch.nn.Parameter))
        if self.whole or drawn:
            changed = [(p, v) for p, v in self.values if p.changed(v)]
        if self.whole and (changed or self.log.entries or self.number > 1):  # else nothing else is in reach now; the second call shows it
            known.last = known.all_places()
            found = reach.arisen(self.values, known.last)
            self.values += found
            changed += [(p, v) for p, v in found if p.changed(v)]
        if changed:
            known.learn(changed)
        if self.whole:
            self.values, self.whole = [(p, v) for p, v in self.values if p.key in known.found or p in known.random], False
            # What did not change is compared with its present state after a failure.
            known.base = self.base = [(p, p.read()) for p in known.last if known.is_unknown(p) and p.kind not in ("random", "_parameters")]
            known.noted = set()
        elif self.log.entries:
            known.noted |= self.log.keys()
            for place in self.log.places():
                known.find(place)

    def check(self):
        """Runs after a failure: raises where something was changed that cannot be put back."""
        self.log.close()
        known = self.known
        known.all_places()
        if known.unreadable:
            raise Unrepeatable(held(known.unreadable))
        if known.is_stale():
            known.renew()
            raise Unrepeatable("the model has other modules or parameters than before")
        if places.switched[0] != self.switched:
            raise Unrepeatable("modules were switched between training and evaluation")
        mine = {id(b) for m in known.norms for b in m._buffers.values()} | {id(p.take()) for p, _ in self.values if p.kind == "_buffers"}
        if known.written or any(t._version != v and id(t) not in mine for t, v in zip(self.tensors, self.versions)):
            raise Unrepeatable("a parameter or buffer was written to")
        for place, value in self.values:
            if places.is_lost(value):
                raise Unrepeatable("%s changed and was not copied" % place.words())
        if self.base is known.base and self.number == known.calls:
            # All places were read when this call ended, the latest: what differs now was changed after it.
            later = [(p, v) for p, v in self.base if known.is_unknown(p) and p.changed(v) and not places.is_lost(v)]
            self.values += later
            known.learn(later)
        words = "" if self.whole else known.changes(known.base, known.noted | self.log.keys())
        if words:
            raise Unrepeatable("%s may have changed in this call" % words)

    def rewind(self):
        """Restores the state before the call; returns the present state."""
        if self.whole:
            self.values += reach.arisen(self.values, self.known.all_places())
        present = Present(self)
        set_random(self.known.devices, self.numbers)
        self.log.undo()
        for place, value in self.values:
            place.put_back(value)
        present.log = places.Log()
        return present

    def norms_behind(self, partial):
        """Return by norm the names of those statistics that already have this call's inputs, and how
        often it was used.

        PyTorch counts a batch before it computes its statistics, and writes those after all
        else that may fail. The count is undone for the norm that the failure was in, partial.
        """
        versions = {id(t): v for t, v in zip(self.tensors, self.versions)}
        found, uses = {}, {}
        for norm in self.known.norms:
            statistics = [name for name, b in norm._buffers.items() if b is not None]
            written = [name for name in statistics if norm._buffers[name]._version != versions.get(id(norm._buffers[name]))]
            count = norm._buffers.get("num_batches_tracked")
            if "num_batches_tracked" in written:
                uses[norm] = count._version - versions.get(id(count), 0) - (norm is partial)
                if norm is partial:
                    with torch.no_grad():
                        count.sub_(1)
                if uses[norm]:
                    found[norm] = statistics
            elif written:
                found[norm] = written
        return found, {norm: n for norm, n in uses.items() if n}


def held(unreadable):
    """Return in a sentence what keeps the state of a model from being known."""
    return "the model holds %s" % unreadable if unreadable.startswith("an ") else unreadable


def generators(devices):
    """Return a function for the CPU, and one for each device, that reads the state of PyTorch's random numbers."""
    return [torch.default_generator.get_state] + [torch.cuda.default_generators[d.index].get_state for d in devices]


def set_random(devices, states):
    torch.set_rng_state(states[0])
    for d, state in zip(devices, states[1:]):
        torch.cuda.set_rng_state(state, d)


class Present:
    """The state that a repeated call of the past finds, and leaves unchanged."""

    def __init__(self, beginning):
        self.beginning, self.log = beginning, None
        self.numbers = [draw() for draw in beginning.known.generators]
        self.values = [(place, place.read(places.SMALL)) for place, _ in beginning.values]
        self.set = beginning.log.present()
        # Around the first calls everything was read, and is put back.
        read = {place.key for place, _ in beginning.values} if beginning.whole else ()
        self.rest = [(p, p.read(places.SMALL)) for p in beginning.known.all_places() if beginning.known.is_unknown(p) and p.key not in read]

    def check(self):
        """Raises where a repeated call has changed more than the first one can have."""
        self.log.close()
        words = self.beginning.known.changes(self.rest, self.log.keys())
        if words:
            raise Unrepeatable("%s changed in the repeated call" % words)

    def compare(self):
        """Raises where this state is not what the repeated calls leave: the backward pass that
        failed has changed it."""
        for place, value in self.values:
            if place.kind != "random" and not place.matches(value):
                raise Unrepeatable("%s may have changed in the backward pass" % place.words())

    def put_back(self):
        """Ends a repeated call whose effects are there already."""
        self.log.close()
        set_random(self.beginning.known.devices, self.numbers)
        self.log.undo()
        places.restore(self.set)
        for place, value in self.values:
            place.put_back(value)
        self.check()


close = places.Log.close


def watch_attributes(torch):
    """Has modules note which of their attributes are set; returns the function that undoes it."""
    places.watch()
    return places.unwatch


def autocast(torch):
    """Return by kind of device whether autocast is on, and to which type; and whether it caches."""
    if hasattr(torch, "get_autocast_dtype"):
        enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
        found = [("cuda", enabled("cuda"), dtype("cuda")), ("cpu", enabled("cpu"), dtype("cpu"))]
    else:
        found = [("cuda", torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()), ("cpu", torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype())]
    return found, torch.is_autocast_cache_enabled()


@contextlib.contextmanager
def cast_as(state):
    """Sets autocast to a state that autocast() returned."""
    kinds, caches = state
    with contextlib.ExitStack() as stack:
        for kind, enabled, dtype in kinds:
            if kind == "cpu" or torch.cuda.is_available():
                stack.enter_context(torch.autocast(kind, enabled=enabled, dtype=dtype, cache_enabled=caches))
        yield


class lent:
    """Replaces the named statistics of norms by copies, which may change."""

    def __init__(self, norms, uses=None):
        self.norms, self.uses, self.own = norms, uses or {}, []

    def __enter__(self):
        for norm, names in self.norms.items():
            mine = {name: norm._buffers[name] for name in names}
            self.own.append((norm, mine))
            norm._buffers.update({name: b.detach().clone() for name, b in mine.items()})
        return self

    def __exit__(self, *exception):
        for norm, mine in self.own:
            lent = norm._buffers.get("num_batches_tracked")
            self.uses[norm] = self.uses.get(norm, 0) - (lent._version if lent is not None else 0)
            norm._buffers.update(mine)

    def check(self):
        """Raises where a norm was used more often than the failed forward had come to."""
        if any(self.uses.values()):
            raise Unrepeatable("a module that keeps statistics is used several times in a forward")
