# What a forward can reach beside its arguments: the attributes of modules and of the objects that they hold, and what
# the functions that a forward may call refer to by name (kinds.py).
import weakref

from ..base import wall
from . import kinds, places

MOST = 50000  # values that are looked at
MOST_ITEMS = 1000  # of a container, that are looked into


class Walk:
    """Finds the places that the forwards of modules may change; norms have statistics that are not among them.

    The places are in found, by key. iterator names what cannot be read, as a generator is, "" for nothing; limit says
    which bound was reached, "" for none.
    """

    def __init__(self, modules, norms=(), functions=(), objects=()):
        self.found: dict = {}
        self.seen: set = set()
        self.spaces: dict = {}  # by id: a namespace of a file, and the names in it that functions look up
        self.todo: list = []
        self.iterator = self.limit = ""
        self.norms = {id(m) for m in norms}
        self.modules = modules
        self.seen.update(map(id, modules))
        for module in modules:
            self.module(module)
        self.todo += [(each, getattr(each, "__name__", type(each).__name__)) for each in (*functions, *objects)]
        self.run()
        self.add(places.Hooks(modules))
        self.add(places.Random("Python"))
        self.add(places.Random("NumPy"))

    def list(self):
        return list(self.found.values())

    def unreadable(self):
        """Return what keeps the state from being known, "" for nothing."""
        return "an iterator, %s" % self.iterator if self.iterator else self.limit

    def add(self, place):
        self.found.setdefault(place.key, place)

    def run(self):
        todo, seen = self.todo, self.seen
        while todo:
            value, name = todo.pop()
            if id(value) in seen:
                continue
            if len(seen) > MOST:
                self.limit = "more than %d values are in reach of the model" % MOST
                break
            seen.add(id(value))
            self.visit(value, name)

    def later(self, value, name):
        """Look at a value that has a name, if it can change or refer to what can."""
        found = kinds.kind(value)
        if found not in (kinds.ATOM, kinds.TENSOR, kinds.OTHER):
            self.todo.append((value, name))

    def visit(self, value, name):
        found = kinds.kind(value)
        if found == kinds.CONTAINER:
            self.container(value, name)
        elif found == kinds.OBJECT:
            self.object(value)
        elif found == kinds.FOREIGN:
            self.foreign(value)
        elif found == kinds.FUNCTION:
            self.function(value)
        elif found == kinds.METHOD:
            self.later(value.__func__, name)
            self.owned(value.__self__, name)
        elif found == kinds.BUILTIN:
            self.owned(getattr(value, "__self__", None), name)
        elif found == kinds.PARTIAL:
            for each in (value.func, value.args, value.keywords):
                self.later(each, name)
        elif found == kinds.CACHE:
            self.add(places.Cache(value, name))
            self.later(value.__wrapped__, name)
        elif found == kinds.ITERATOR:
            self.iterator = self.iterator or name
        elif found == kinds.CLASS:
            self.type(value)
        elif found == kinds.MODULE:
            for module in modules_in(value):
                if id(module) not in self.seen or module is value:
                    self.seen.add(id(module))
                    self.module(module, True)
        elif found == kinds.REFERENCE:
            target = value() if isinstance(value, weakref.ref) else None
            if target is not None:
                self.later(target, name)

    def owned(self, value, name):
        """Look at what a method is bound to: it has no other name there."""
        found = kinds.kind(value)
        if found in (kinds.CONTAINER, kinds.TENSOR):
            self.add(places.Held(value, name))
        if found != kinds.NAMESPACE:
            self.later(value, name)

    def container(self, value, name):
        if kinds.size(value) > MOST_ITEMS:
            inner = kinds.items(value)
            if not kinds.ATOMS.issuperset(map(type, inner)):
                self.limit = self.limit or "%s has more than %d items" % (name, MOST_ITEMS)
            return
        for each in kinds.items(value):
            self.later(each, name)

    def module(self, module, foreign=False):
        """Look at a module; foreign: it is none of those whose parameters and buffers are known."""
        own = module.__dict__
        if not foreign:
            for name, p in own["_parameters"].items():
                if p is not None:
                    self.add(places.Place(module, name, "_parameters"))
        elif "_parameters" in own:
            for name in own["_parameters"]:
                self.add(places.Place(module, name, "_parameters"))
        if id(module) not in self.norms:
            for name in own["_buffers"]:
                self.add(places.Place(module, name, "_buffers"))
        t = type(module)
        steady = kinds.is_library(t.__module__)
        self.space(module, own, not steady)
        if id(t) not in self.seen:
            self.later(t, t.__name__)

    def object(self, value):
        own = kinds.space_of(value)
        self.space(value, own, True)
        self.later(type(value), type(value).__name__)

    def foreign(self, value):
        """Look at an object of a library: what its attributes refer to is the library's."""
        own = kinds.space_of(value)
        self.add(places.Numbers(value))
        for name, each in list(own.items()):
            if kinds.kind(each) in (kinds.TENSOR, kinds.CONTAINER) and not kinds.is_internal(name):
                self.add(places.Place(value, name))

    def space(self, owner, own, numbers):
        """Look at a namespace; numbers: whether those in it are a place."""
        skipped = kinds.internal()
        if numbers:
            self.add(places.Numbers(owner))
        for name, value in list(own.items()):
            if name in skipped:
                continue
            found = kinds.kind(value)
            if found == kinds.ATOM or kinds.is_internal(name):
                continue
            if not numbers and type(value) is tuple and kinds.ATOMS.issuperset(map(type, value)):
                continue  # as the stride of a convolution: like a number, it changes only where the attribute is set
            if found in (kinds.TENSOR, kinds.CONTAINER):
                self.add(places.Place(owner, name))
                if found == kinds.TENSOR:
                    continue
            if found != kinds.OTHER:
                self.todo.append((value, name))

    def type(self, value):
        """Look at a class of the job: its attributes, and its methods."""
        for each in value.__mro__:
            if each is not value and id(each) in self.seen or kinds.is_library(each.__module__):
                continue
            self.seen.add(id(each))
            self.space(each, dict(vars(each)), True)
            for attribute in list(vars(each).values()):
                function = getattr(attribute, "__func__", getattr(attribute, "fget", None)) if isinstance(attribute, (staticmethod, classmethod, property)) else attribute
                for f in (function, getattr(attribute, "fset", None) if isinstance(attribute, property) else None):
                    if f is not None:
                        self.later(f, each.__name__)
        meta = type(value)
        if meta is not type and not kinds.is_library(meta.__module__):
            self.later(meta, meta.__name__)

    def function(self, function):
        """Look at what a function refers to: variables of enclosing functions, defaults, attributes, and by name what is
        in its file and in modules that it imports."""
        if kinds.is_library(function.__module__) or function.__code__.co_filename.startswith(wall.HERE):
            if "__wrapped__" in function.__dict__:
                self.later(function.__wrapped__, function.__name__)
            return
        for cell in function.__closure__ or ():
            place = places.Cell(cell)
            value = place.take()
            if value is not places.MISSING:
                if kinds.kind(value) in (kinds.ATOM, kinds.TENSOR, kinds.CONTAINER):
                    self.add(place)
                if kinds.kind(value) != kinds.FOREIGN:
                    self.later(value, "a variable of an enclosing function")
        for i, value in enumerate(function.__defaults__ or ()):
            self.default(function, i, value, "__defaults__")
        for name, value in (function.__kwdefaults__ or {}).items():
            self.default(function, name, value, "__kwdefaults__")
        if function.__dict__:
            self.space(function, function.__dict__, True)
        self.names(function.__globals__, kinds.loaded(function.__code__), kinds.named(function.__code__))

    def default(self, function, name, value, what):
        if kinds.kind(value) in (kinds.TENSOR, kinds.CONTAINER):
            self.add(places.Place(function, name, what))
        if kinds.kind(value) != kinds.FOREIGN:
            self.later(value, "a default of %s" % function.__name__)

    def names(self, space, names, attributes):
        """Look at names in the namespace of a file; of a module that is imported there, at the attributes."""
        known = self.spaces.setdefault(id(space), (space, set()))[1]
        fresh = names - known
        if not fresh:
            return
        known |= fresh
        numbers = set()
        for name in fresh:
            if name not in space or kinds.is_internal(name):
                continue
            value = space[name]
            found = kinds.kind(value)
            if found == kinds.ATOM:
                numbers.add(name)
            elif found == kinds.NAMESPACE:
                if not kinds.is_library(vars(value).get("__name__")) and not kinds.is_standard(value):
                    self.names(vars(value), attributes, attributes)
            elif found == kinds.FOREIGN or found == kinds.CLASS and kinds.is_library(value.__module__):
                continue
            else:
                if found in (kinds.TENSOR, kinds.CONTAINER):
                    self.add(places.Place(space, name))
                self.later(value, name)
        if numbers:
            place = self.found.get((id(space), "numbers", ""))
            if place is None:
                self.add(places.Numbers(space, numbers))
            else:
                place.names |= numbers


def modules_in(module):
    """Return a module and those in it, without its own methods."""
    found, todo, seen = [], [module], set()
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            found.append(each)
            todo += each.__dict__.get("_modules", {}).values()
    return found


def arisen(read, now):
    """Return those of the places now, with their values before, where a forward has put a tensor or a
    container in place of a number or nothing; read has the places and values before it."""
    own, before = {p.key for p, _ in read}, {p.id: value for p, value in read if isinstance(p, places.Numbers)}
    found = []
    for place in now:
        names = before.get(place.key[0])
        if names is None or place.key in own or place.kind != "__dict__" or names.names is not None and place.name not in names.names:
            continue
        value = names.get(place.name, places.MISSING)
        if value is not places.PRESENT:
            found.append((place, value))
    return found
