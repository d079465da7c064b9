# What a forward can reach beside its arguments: the attributes of modules and of the objects that they hold, and what
# the functions that a forward may call refer to by name. Only looking: no function, property or method of the job
# runs, and a container is read by the methods of Python's own type.
import collections
import dis
import functools
import os
import random
import sys
import types
import weakref

from . import places

HERE = os.path.dirname(__file__) + os.sep
# Modules of these packages change nothing but their attributes and buffers.
LIBRARIES = frozenset(("torch", "torchvision", "torchaudio", "transformers", "diffusers", "timm", "peft", "accelerate", "lightning", "pytorch_lightning",
                       "deepspeed", "numpy", "einops", "builtins", "collections", "functools", "typing", "abc", "random", "math", "inside"))
MOST = 50000  # values that are looked at
MOST_ITEMS = 1000  # of a container, that are looked into

# What PyTorch's modules have for themselves, and the switches that are turned between a call that failed and its repeat.
INTERNAL = frozenset(("_parameters", "_buffers", "_modules", "_gradient_checkpointing_func", "training", "gradient_checkpointing", "_is_full_backward_hook",
                      "_non_persistent_buffers_set", "_is_hf_initialized", "_compiled_call_impl", "_is_fsdp_managed_module", "_use_training_state"))


def is_library(name):
    return str(name).partition(".")[0] in LIBRARIES


@functools.lru_cache(maxsize=None)
def internal():
    """Return the names of attributes that are no place."""
    import torch

    return INTERNAL | frozenset(vars(torch.nn.Module()))


def is_internal(name):
    """Return whether an attribute is one that PyTorch's modules, or classes, have for themselves."""
    return name in internal() or type(name) is str and name.startswith(("__", "_fsdp_", "_dynamo"))


# The kinds of values.

(ATOM, TENSOR, CONTAINER, FUNCTION, METHOD, BUILTIN, PARTIAL, CACHE, ITERATOR, CLASS, NAMESPACE, MODULE, REFERENCE, FOREIGN, OBJECT, OTHER) = range(16)
HEAP = 1 << 9  # of the flags of a type: it is one of Python, whose attributes can be read
SKIPPED = (types.CodeType, types.FrameType, types.TracebackType, property, staticmethod, classmethod, BaseException, type(None), range, slice)
kinds: dict = {}  # by type


def kind(value):
    found = kinds.get(type(value))
    if found is None:
        found = kind_of(type(value))
        try:
            kinds[type(value)] = found
        except TypeError:  # a type whose metaclass has no hash
            pass
    return found


def kind_of(t):
    """Return the kind of the values of a type."""
    import torch

    numpy = sys.modules.get("numpy")
    if t in places.ATOMS:
        return ATOM
    if issubclass(t, torch.nn.Module):
        return MODULE
    if issubclass(t, (torch.Tensor, torch.Generator, random.Random)) or numpy is not None and issubclass(t, (numpy.ndarray, numpy.random.Generator, numpy.random.RandomState)):
        return TENSOR
    if issubclass(t, places.CONTAINERS + (bytearray,)) or t.__module__ == "array":
        return CONTAINER
    if issubclass(t, (weakref.ref, weakref.ProxyTypes[0], weakref.ProxyTypes[1])):
        return REFERENCE
    for types_, found in ((types.FunctionType, FUNCTION), (types.MethodType, METHOD), (functools.partial, PARTIAL), (functools._lru_cache_wrapper, CACHE),
                          ((types.BuiltinFunctionType, type("".__str__)), BUILTIN), (type, CLASS), (types.ModuleType, NAMESPACE)):
        if issubclass(t, types_):
            return found
    if issubclass(t, SKIPPED):
        return OTHER
    names = {name for base in t.__mro__ for name in vars(base)}
    if "__next__" in names and not (t.__flags__ & HEAP and not is_library(t.__module__)):
        return OTHER if "read" in names else ITERATOR
    if is_library(t.__module__):
        return FOREIGN if t.__dictoffset__ else OTHER
    return OBJECT


def base(t):
    """Return the type of Python's own whose methods read and write a container, None for none."""
    return next((each for each in (collections.OrderedDict, *places.CONTAINERS) if issubclass(t, each)), None)


def items(value):
    """Return what a container holds."""
    own = base(type(value))
    if own is None:
        return []
    return list(own.values(value) if issubclass(own, dict) else own.__iter__(value))


def keys(value):
    """Return the keys of a dictionary, None for another container."""
    return list(base(type(value)).keys(value)) if isinstance(value, dict) else None


def size(value):
    own = base(type(value))
    return len(value) if own is None else own.__len__(value)


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
        found = kind(value)
        if found not in (ATOM, TENSOR, OTHER):
            self.todo.append((value, name))

    def visit(self, value, name):
        found = kind(value)
        if found == CONTAINER:
            self.container(value, name)
        elif found == OBJECT:
            self.object(value)
        elif found == FOREIGN:
            self.foreign(value)
        elif found == FUNCTION:
            self.function(value)
        elif found == METHOD:
            self.later(value.__func__, name)
            self.owned(value.__self__, name)
        elif found == BUILTIN:
            self.owned(getattr(value, "__self__", None), name)
        elif found == PARTIAL:
            for each in (value.func, value.args, value.keywords):
                self.later(each, name)
        elif found == CACHE:
            self.add(places.Cache(value, name))
            self.later(value.__wrapped__, name)
        elif found == ITERATOR:
            self.iterator = self.iterator or name
        elif found == CLASS:
            self.type(value)
        elif found == MODULE:
            for module in modules_in(value):
                if id(module) not in self.seen or module is value:
                    self.seen.add(id(module))
                    self.module(module, True)
        elif found == REFERENCE:
            target = value() if isinstance(value, weakref.ref) else None
            if target is not None:
                self.later(target, name)

    def owned(self, value, name):
        """Look at what a method is bound to: it has no other name there."""
        found = kind(value)
        if found in (CONTAINER, TENSOR):
            self.add(places.Held(value, name))
        if found != NAMESPACE:
            self.later(value, name)

    def container(self, value, name):
        if size(value) > MOST_ITEMS:
            inner = items(value)
            if not places.ATOMS.issuperset(map(type, inner)):
                self.limit = self.limit or "%s has more than %d items" % (name, MOST_ITEMS)
            return
        for each in items(value):
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
        steady = is_library(t.__module__)
        self.space(module, own, not steady)
        if id(t) not in self.seen:
            self.later(t, t.__name__)

    def object(self, value):
        own = space_of(value)
        self.space(value, own, True)
        self.later(type(value), type(value).__name__)

    def foreign(self, value):
        """Look at an object of a library: what its attributes refer to is the library's."""
        own = space_of(value)
        self.add(places.Numbers(value))
        for name, each in list(own.items()):
            if kind(each) in (TENSOR, CONTAINER) and not is_internal(name):
                self.add(places.Place(value, name))

    def space(self, owner, own, numbers):
        """Look at a namespace; numbers: whether those in it are a place."""
        skipped = internal()
        if numbers:
            self.add(places.Numbers(owner))
        for name, value in list(own.items()):
            if name in skipped:
                continue
            found = kind(value)
            if found == ATOM or is_internal(name):
                continue
            if found in (TENSOR, CONTAINER):
                self.add(places.Place(owner, name))
                if found == TENSOR:
                    continue
            if found != OTHER:
                self.todo.append((value, name))

    def type(self, value):
        """Look at a class of the job: its attributes, and its methods."""
        for each in value.__mro__:
            if each is not value and id(each) in self.seen or is_library(each.__module__):
                continue
            self.seen.add(id(each))
            self.space(each, dict(vars(each)), True)
            for attribute in list(vars(each).values()):
                function = getattr(attribute, "__func__", getattr(attribute, "fget", None)) if isinstance(attribute, (staticmethod, classmethod, property)) else attribute
                for f in (function, getattr(attribute, "fset", None) if isinstance(attribute, property) else None):
                    if f is not None:
                        self.later(f, each.__name__)
        meta = type(value)
        if meta is not type and not is_library(meta.__module__):
            self.later(meta, meta.__name__)

    def function(self, function):
        """Look at what a function refers to: variables of enclosing functions, defaults, attributes, and by name what is
        in its file and in modules that it imports."""
        if is_library(function.__module__) or function.__code__.co_filename.startswith(HERE):
            if "__wrapped__" in function.__dict__:
                self.later(function.__wrapped__, function.__name__)
            return
        for cell in function.__closure__ or ():
            place = places.Cell(cell)
            value = place.take()
            if value is not places.MISSING:
                if kind(value) in (ATOM, TENSOR, CONTAINER):
                    self.add(place)
                if kind(value) != FOREIGN:
                    self.later(value, "a variable of an enclosing function")
        for i, value in enumerate(function.__defaults__ or ()):
            self.default(function, i, value, "__defaults__")
        for name, value in (function.__kwdefaults__ or {}).items():
            self.default(function, name, value, "__kwdefaults__")
        if function.__dict__:
            self.space(function, function.__dict__, True)
        self.names(function.__globals__, loaded(function.__code__), named(function.__code__))

    def default(self, function, name, value, what):
        if kind(value) in (TENSOR, CONTAINER):
            self.add(places.Place(function, name, what))
        if kind(value) != FOREIGN:
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
            if name not in space or is_internal(name):
                continue
            value = space[name]
            found = kind(value)
            if found == ATOM:
                numbers.add(name)
            elif found == NAMESPACE:
                if not is_library(vars(value).get("__name__")) and not is_standard(value):
                    self.names(vars(value), attributes, attributes)
            elif found == FOREIGN or found == CLASS and is_library(value.__module__):
                continue
            else:
                if found in (TENSOR, CONTAINER):
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


def space_of(owner):
    """Return the attributes of an object, a class or a file, by name."""
    if type(owner) is dict:
        return owner
    if isinstance(owner, type):
        return type.__getattribute__(owner, "__dict__")
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        found = {}
    names = slots(type(owner))  # type: ignore[arg-type]
    if not names:
        return found
    found = dict(found)
    for name in names:
        try:
            found[name] = object.__getattribute__(owner, name)
        except AttributeError:
            pass
    return found


@functools.lru_cache(maxsize=4096)
def slots(t):
    """Return the names of the slots of a type's objects."""
    return tuple(name for base in t.__mro__ for name, value in vars(base).items() if isinstance(value, types.MemberDescriptorType) and not is_library(base.__module__))


STANDARD = os.path.dirname(os.__file__) + os.sep


def is_standard(module):
    """Return whether a module is of Python's standard library."""
    path = vars(module).get("__file__")
    return path is None and vars(module).get("__name__") in sys.builtin_module_names or bool(path) and path.startswith(STANDARD) and "-packages" not in path


EXTENDED, GLOBAL = dis.opmap["EXTENDED_ARG"], dis.opmap["LOAD_GLOBAL"]
GLOBALS = frozenset(dis.opmap[name] for name in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"))
SHIFT = 1 if sys.version_info >= (3, 11) else 0  # of the number of the name that is loaded


@functools.lru_cache(maxsize=4096)
def loaded(code):
    """Return the global names that a function's code loads or stores, also inside it: names of attributes are none."""
    raw, names, found, more = code.co_code, code.co_names, set(), 0
    for i in range(0, len(raw), 2):
        operation, argument = raw[i], raw[i + 1] | more
        more = argument << 8 if operation == EXTENDED else 0
        if operation in GLOBALS:
            n = argument >> SHIFT if operation == GLOBAL else argument
            if n >= len(names):
                return named(code)
            found.add(names[n])
    return frozenset(found).union(*(loaded(each) for each in code.co_consts if isinstance(each, types.CodeType)))


@functools.lru_cache(maxsize=4096)
def named(code):
    """Return the names that a function's code looks up, also inside it."""
    return frozenset(code.co_names).union(*(named(each) for each in code.co_consts if isinstance(each, types.CodeType)))


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
