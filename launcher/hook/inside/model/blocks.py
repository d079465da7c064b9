# The repeated blocks of a model: activation checkpointing recomputes them one by one, and
# the planner counts bytes for each.

import torch

from . import listed


@listed.kept
def find(root):
    """Return the lists of repeated blocks, innermost where lists nest.

    Each is {"path": dotted path of the container, "class": name, "count": n,
    "modules": [the blocks, in order]}. A block is a module that has children and a
    forward of its own; those of one container that are of one class make a list. Paths
    are those in the state dict of the model itself, without a wrapper's "module.".
    """
    found = gather(unwrap(root), "")
    return found or siblings(unwrap(root))


# By the names of their classes, what wraps a model, and where it has the module that it calls.
WRAPPERS = {
    "DataParallel": "module", "DistributedDataParallel": "module", "FullyShardedDataParallel": "_fsdp_wrapped_module", "DeepSpeedEngine": "module",
    "FabricModule": "_forward_module", "_FabricModule": "_forward_module", "_LightningModuleWrapperBase": "_forward_module", "OptimizedModule": "_orig_mod",
}


def unwrap(root):
    """Return the model inside DistributedDataParallel, FSDP, an engine and the like."""
    while True:
        name = next((WRAPPERS[base.__name__] for base in type(root).__mro__ if base.__name__ in WRAPPERS), "")
        if not name or root._modules.get(name) is None:
            return root
        root = root._modules[name]


def class_of(module):
    """Return the class that the model's author wrote: fully_shard puts one before it."""
    kind = type(module)
    if kind.__name__.startswith("FSDP") and len(kind.__mro__) > 2 and kind.__mro__[1].__name__ == "FSDPModule":
        return kind.__mro__[2]
    return kind


def children(module):
    """Return the names and children, seen through the wrapper that each may have."""
    return [(name, unwrap(child)) for name, child in module._modules.items() if child is not None]


def is_container(module):
    nn = torch.nn
    return isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict))


def is_block(module):
    """Return whether a module has children, and can be called."""
    unimplemented = getattr(torch.nn.Module.forward, "__name__", "")
    forward = getattr(type(module), "forward", None)
    callable_ = forward is not None and getattr(forward, "__name__", "") != unimplemented
    return callable_ and bool(children(module))


def join(path, name):
    return path + "." + name if path else name


def by_class(members):
    """Groups (name, module) by class, in the order of the first of each."""
    groups = {}
    for name, module in members:
        groups.setdefault(class_of(module), []).append((name, module))
    return list(groups.values())


def as_list(path, modules):
    return {"path": path, "class": class_of(modules[0]).__name__, "count": len(modules), "modules": modules}


def gather(module, path):
    """Return the lists at and below a module; modules inside a block belong to the block."""
    found, taken = [], set()
    if is_container(module):
        for group in by_class(children(module)):
            lists = in_group(group, path)
            if lists:
                found += lists
                taken |= {id(child) for _, child in group}
    for name, child in children(module):
        if id(child) not in taken:
            found += gather(child, join(path, name))
    return found


def in_group(group, path):
    """Return the lists that a container's children of one class make."""
    if len(group) < 2:
        return []
    stages = {name: in_stage(child, join(path, name), 2) for name, child in group}
    if any(stages.values()):
        # A stage of one block is a stage, too.
        stages = {name: in_stage(child, join(path, name), 1) for name, child in group}
    found = [each for name, _ in group for each in stages[name]]
    plain = [child for name, child in group if not stages[name]]
    if not is_block(plain[0] if plain else group[0][1]):
        return found + across(plain, path)
    return found + ([as_list(path, plain)] if plain else [])


def in_stage(stage, path, least):
    """Return the lists that a stage consists of: then it is a stage and not a block.

    The experts or the heads of a block are a list as well, but deeper in it, or the
    smaller part of it.
    """
    containers = [(path, stage)] if is_container(stage) else []
    containers += [(join(path, name), child) for name, child in children(stage) if is_container(child)]
    found = []
    for where, container in containers:
        members = children(container)
        alike = len(by_class(members)) == 1 and len(members) >= least
        if alike and all(is_block(child) for _, child in members) and 2 * weight(container) > weight(stage):
            found += in_group(members, where) or [as_list(where, [child for _, child in members])]
    return found


@listed.kept
def weight(module):
    """Return the elements of a module's parameters."""
    return sum(p.numel() for p in listed.parameters(module))


def across(rows, path):
    """Return the columns of a list of bare lists: [[attention, mlp], [attention, mlp], ...]."""
    members = [member for row in rows for member in children(row)]
    return [
        as_list(path, [child for _, child in group])
        for group in by_class(members) if len(group) > 1 and is_block(group[0][1])
    ]


def siblings(module, path=""):
    """Return the lists of a model that keeps its blocks as attributes: down1, down2, up1, up2."""
    found = [
        as_list(path, [child for _, child in group])
        for group in by_class(children(module)) if len(group) > 1 and is_block(group[0][1])
    ]
    for name, child in children(module) if not found else []:
        found += siblings(child, join(path, name))
    return found
