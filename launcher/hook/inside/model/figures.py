# The figures of a model by which the planner knows how its memory follows a plan: see
# strategy/memory.TrainedModel, whose keys these are.
import sys

from . import blocks as blocks_part, listed

CAST = ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Conv1D")


def of(root, model, compiled):
    """Return the figures of the whole model, also where ranks hold parts of it."""
    nn = sys.modules["torch"].nn
    parameters, modules = listed.parameters(root), listed.modules(root)
    sizes = {id(p): size(p) for p in parameters}
    found = {
        "class": type(model).__name__, "compiled": compiled, "parameters": sum(sizes.values()),
        "trainable": sum(sizes[id(p)] for p in parameters if p.requires_grad), "largest": max(sizes.values(), default=0),
        "buffer_bytes": sum(b.numel() * b.element_size() for b in listed.buffers(root)),
    }
    types: dict = {}
    for p in parameters:
        types[p.dtype] = types.get(p.dtype, 0) + sizes[id(p)] * p.element_size()
    found["bytes"] = {str(dtype).replace("torch.", ""): n for dtype, n in types.items()}
    cast = weights(modules)
    embedded = {id(m.weight) for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}

    def total(ids):
        return sum(sizes.get(i, 0) for i in ids)

    found_blocks = blocks_part.find(root)
    lists, inside = blocks(found_blocks, sizes)
    found.update(
        blocks=lists, outside=total(sizes.keys() - inside), cast=total(cast), cast_outside=total(cast - inside),
        embedding=total(embedded), tied=bool(embedded & cast), convolutional=convolutional(modules, found_blocks), attention=any(map(attends, listed.classes(modules))))
    found["vocabulary"], found["hidden"] = widest(modules)
    found.update(units(modules, sizes))
    return found


def units(modules, sizes):
    """Return the parameters that FSDP gathers at once: of the outermost unit, which holds them until the
    backward is over, and of the largest other one."""
    found = of_classes(modules, {"FSDPModule", "FullyShardedDataParallel"})
    own = {m: {id(p) for p in m.parameters()} for m in found}
    counts = []
    for unit in found:
        below = set().union(*(own[m] for m in unit.modules() if m is not unit and m in own))
        counts.append(sum(sizes.get(i, 0) for i in own[unit] - below))
    return {"unit_outermost": counts[0], "unit_largest": max(counts[1:], default=0)} if counts else {}


def size(p):
    """Return the elements of a parameter, of which this rank may hold a part."""
    whole = getattr(p, "_unpadded_unsharded_size", None)  # FSDP's flat one
    if whole is not None:
        return int(whole.numel())
    return int(getattr(p, "ds_numel", 0) or p.numel())  # ZeRO-3's; a DTensor's is the whole's


def names(kind):
    """Return the names of a class and its bases."""
    return {base.__name__ for base in kind.__mro__}


def of_classes(modules, wanted):
    """Return the modules of which the class or one of its bases has one of these names."""
    kinds = {kind for kind in listed.classes(modules) if not names(kind).isdisjoint(wanted)}
    return [m for m in modules if type(m) in kinds] if kinds else []


def weights(modules):
    """Return the ids of the weights that autocast keeps a 16-bit copy of."""
    found = {id(getattr(m, "weight", None)) for m in of_classes(modules, CAST)}
    found.update(id(getattr(m, "in_proj_weight", None)) for m in of_classes(modules, ("MultiheadAttention",)))
    return found - {id(None)}


def convolutional(modules, lists):
    """Return whether a model is a convolutional net: most modules that compute are convolutions,
    or each of its blocks has one over an image. A ConvNeXt's block has one
    convolution and two linear modules; a ViT's only convolution is not in its blocks."""
    rolls = of_classes(modules, {name for name in CAST if name.startswith("Conv") and name[-1] == "d"})
    if len(rolls) > len(of_classes(modules, ("Linear", "Conv1D"))):
        return True
    # Convolutions over an image, or a volume, and neighbours.
    wide = {id(m) for m in of_classes(modules, ("Conv2d", "Conv3d")) if max(m.kernel_size) > 1}
    inside = [m for each in lists for m in each["modules"]]
    return bool(inside and wide) and all(any(id(m) in wide for m in listed.modules(block)) for block in inside)


def attends(kind):
    """Return whether a class is called attention. There is no other sign of one: what it computes
    are products of matrices."""
    return any("attention" in name or "attn" in name for name in map(str.lower, names(kind)))


def widest(modules):
    """Return the width of the widest linear module, and its input's."""
    wide = [(int(m.out_features), int(m.in_features)) for m in of_classes(modules, ("Linear",)) if hasattr(m, "out_features") and hasattr(m, "in_features")]
    return max(wide, default=(0, 0))


def blocks(found, sizes):
    """Return the innermost lists of blocks, and the ids of the parameters that are in them."""
    lists, inside = [], set()
    for each in found:
        own = {id(p) for m in each["modules"] for p in listed.parameters(m)}
        lists.append({"path": each["path"], "class": each["class"], "count": each["count"], "parameters": sum(sizes.get(i, 0) for i in own)})
        inside |= own
    return lists, inside
