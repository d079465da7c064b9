# The kinds of values that a forward can reach, and how each is read. Only looking: no function, property or method of
# the job runs, and a container is read by the methods of Python's own type.
import collections
import dis
import functools
import os
import random
import sys
import types
import weakref

import torch

# Modules of these packages change nothing but their attributes and buffers.
LIBRARIES = frozenset(("torch", "torchvision", "torchaudio", "transformers", "diffusers", "timm", "peft", "accelerate", "lightning", "pytorch_lightning",
                       "deepspeed", "numpy", "einops", "builtins", "collections", "functools", "typing", "abc", "random", "math", "inside"))
ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None)))
CONTAINERS = (list, tuple, set, dict, collections.deque)

# What PyTorch's modules have for themselves, and the switches that are turned between a call that failed and its repeat.
INTERNAL = frozenset(("_parameters", "_buffers", "_modules", "_gradient_checkpointing_func", "training", "gradient_checkpointing", "_is_full_backward_hook",
                      "_non_persistent_buffers_set", "_is_hf_initialized", "_compiled_call_impl", "_is_fsdp_managed_module", "_use_training_state"))


def is_library(name):
    return str(name).partition(".")[0] in LIBRARIES


@functools.lru_cache(maxsize=None)
def internal():
    """Return the names of attributes that are no place."""
    return INTERNAL | frozenset(vars(torch.nn.Module()))


def is_internal(name):
    """Return whether an attribute is one that PyTorch's modules, or classes, have for themselves."""
    return name in internal() or type(name) is str and name.startswith(("__", "_fsdp_", "_dynamo"))


# The kinds of values.

(ATOM, TENSOR, CONTAINER, FUNCTION, METHOD, BUILTIN, PARTIAL, CACHE, ITERATOR, CLASS, NAMESPACE, MODULE, REFERENCE, FOREIGN, OBJECT, OTHER) = range(16)
HEAP = 1 << 9  # of the flags of a type: it is one of Python, whose attributes can be read
SKIPPED = (types.CodeType, types.FrameType, types.TracebackType, property, staticmethod, classmethod, BaseException, type(None), range, slice)
known: dict = {}  # by type


def kind(value):
    found = known.get(type(value))
    if found is None:
        found = kind_of(type(value))
        try:
            known[type(value)] = found
        except TypeError:  # a type whose metaclass has no hash
            pass
    return found


def kind_of(t):
    """Return the kind of the values of a type."""
    numpy = sys.modules.get("numpy")
    if t in ATOMS:
        return ATOM
    if issubclass(t, torch.nn.Module):
        return MODULE
    if issubclass(t, (torch.Tensor, torch.Generator, random.Random)) or numpy is not None and issubclass(t, (numpy.ndarray, numpy.random.Generator, numpy.random.RandomState)):
        return TENSOR
    if issubclass(t, CONTAINERS + (bytearray,)) or t.__module__ == "array":
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
    return next((each for each in (collections.OrderedDict, *CONTAINERS) if issubclass(t, each)), None)


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
