# The figures of a model by which the planner knows how its memory follows a plan: see
# strategy/memory.TrainedModel, whose keys these are.
import sys

from . import blocks as blocks_part, listed

CAST = ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Conv1D")


def of(root, model, compiled):
    """Return the figures of the whole model, also where ranks hold parts of it."""
    nn = sys.modules["torch"].nn
    sizes = {id(p): size(p) for p in listed.parameters(root)}
    found = {
        "class": type(model).__name__, "compiled": compiled, "parameters": sum(sizes.values()), "bytes": {},
        "trainable": sum(sizes[id(p)] for p in listed.parameters(root) if p.requires_grad), "largest": max(sizes.values(), default=0),
        "buffer_bytes": sum(b.numel() * b.element_size() for b in listed.buffers(root)),
    }
    for p in listed.parameters(root):
        name = str(p.dtype).replace("torch.", "")
        found["bytes"][name] = found["bytes"].get(name, 0) + sizes[id(p)] * p.element_size()
    modules = listed.modules(root)
    cast = weights(modules)
    embedded = {id(m.weight) for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}

    def total(ids):
        return sum(sizes.get(i, 0) for i in ids)

    found_blocks = blocks_part.find(root)
    lists, inside = blocks(found_blocks, sizes)
    found.update(
        blocks=lists, outside=total(sizes.keys() - inside), cast=total(cast), cast_outside=total(cast - inside),
        embedding=total(embedded), tied=bool(embedded & cast), convolutional=convolutional(modules, found_blocks), attention=any(attends(m) for m in modules))
    found["vocabulary"], found["hidden"] = widest(modules)
    found.update(units(modules, sizes))
    return found


def units(modules, sizes):
    """Return the parameters that FSDP gathers at once: of the outermost unit, which holds them until the
    backward is over, and of the largest other one."""
    found = [m for m in modules if kinds(m) & {"FSDPModule", "FullyShardedDataParallel"}]
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


def kinds(module):
    return names(type(module))


@listed.kept
def names(kind):
    """Return the names of a class and its bases."""
    return {base.__name__ for base in kind.__mro__}


def weights(modules):
    """Return the ids of the weights that autocast keeps a 16-bit copy of."""
    found = set()
    for m in modules:
        names = kinds(m)
        if names.intersection(CAST):
            found.add(id(getattr(m, "weight", None)))
        if "MultiheadAttention" in names:
            found.add(id(getattr(m, "in_proj_weight", None)))
    return found - {id(None)}


def convolutional(modules, lists):
    """Return whether a model is a convolutional net: most modules that compute are convolutions,
    or each of its blocks has one over an image. A ConvNeXt's block has one
    convolution and two linear modules; a ViT's only convolution is not in its blocks."""
    rolls = sum(1 for m in modules if any(name.startswith("Conv") and name[-1] == "d" for name in kinds(m) & set(CAST)))
    if rolls > sum(1 for m in modules if kinds(m) & {"Linear", "Conv1D"}):
        return True
    inside = [m for each in lists for m in each["modules"]]
    return bool(inside) and all(any(wide(m) for m in listed.modules(block)) for block in inside)


def wide(module):
    """Return whether a module is a convolution over an image, or a volume, and neighbours."""
    return bool(kinds(module) & {"Conv2d", "Conv3d"}) and max(module.kernel_size) > 1


def attends(module):
    """Return whether a module is called attention. There is no other sign of one: what it computes
    are products of matrices."""
    return any("attention" in name or "attn" in name for name in map(str.lower, kinds(module)))


def widest(modules):
    """Return the width of the widest linear module, and its input's."""
    wide = [(int(m.out_features), int(m.in_features)) for m in modules if "Linear" in kinds(m) and hasattr(m, "out_features") and hasattr(m, "in_features")]
    return max(wide, default=(0, 0))


def blocks(found, sizes):
    """Return the innermost lists of blocks, and the ids of the parameters that are in them."""
    lists, inside = [], set()
    for each in found:
        own = {id(p) for m in each["modules"] for p in listed.parameters(m)}
        lists.append({"path": each["path"], "class": each["class"], "count": each["count"], "parameters": sum(sizes.get(i, 0) for i in own)})
        inside |= own
    return lists, inside
