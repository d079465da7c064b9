# What is asked of the model many times while its first call begins is looked at once: to list the modules or the
# parameters of a large model takes longer than all else.
import functools
import typing

import torch

# known: what was found, by function and model, while the first call begins; None at all other times.
state: dict = {"known": None}


class once:
    """A context in which what `kept` functions find is kept."""

    def __enter__(self):
        state["known"] = {}

    def __exit__(self, *exception):
        state["known"] = None


def again():
    """Keep nothing of what was found: the model was changed."""
    if state["known"] is not None:
        state["known"] = {}


def kept(look: typing.Any) -> typing.Any:
    """Have a function of a module, or a class, return what it returned before."""
    @functools.wraps(look)
    def ask(root):
        known = state["known"]
        if known is None:
            return look(root)
        found = known.get((look, id(root)))
        if found is None:
            found = known[look, id(root)] = root, look(root)  # what it was asked about keeps its id for as long
        return found[1]

    return ask


NONE = object()
NAMES = "modules", "named_modules", "parameters", "named_parameters", "buffers", "named_buffers", "_named_members"


@kept
def is_plain(kind):
    """Return whether a class lists what its modules have as PyTorch's own do: then it is listed here, which is faster."""
    plain = torch.nn.Module
    return all(getattr(kind, name, None) is getattr(plain, name, NONE) for name in NAMES)


@kept
def modules(root):
    """Return a model's modules in the order of root.modules()."""
    found, todo, plain = {}, [root], set()
    while todo:
        module = todo.pop()
        if module is not None and id(module) not in found:
            if type(module) not in plain:
                if not is_plain(type(module)):
                    return list(root.modules())
                plain.add(type(module))
            found[id(module)] = module
            children = module._modules
            if children:
                todo += list(children.values())[::-1]
    return list(found.values())


@kept
def parameters(root):
    """Return a model's parameters in the order of root.parameters()."""
    return members(root, "_parameters") if is_plain(type(root)) else list(root.parameters())


@kept
def buffers(root):
    """Return a model's buffers in the order of root.buffers()."""
    return members(root, "_buffers") if is_plain(type(root)) else list(root.buffers())


def members(root, name):
    found = {}
    for module in modules(root):
        table = getattr(module, name)
        if table:
            for each in table.values():
                if each is not None:
                    found[id(each)] = each
    return list(found.values())


def classes(modules):
    """Return the classes of modules, each once."""
    return list(dict.fromkeys(map(type, modules)))


def has(module, name):
    """Return whether a module or its class has an attribute. To ask a module for what it has not takes longest."""
    return name in module.__dict__ or hasattr(type(module), name)


@kept
def ids(root):
    """Return the ids of the parameters."""
    return set(map(id, parameters(root)))
