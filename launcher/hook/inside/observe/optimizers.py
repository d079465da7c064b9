# The optimizers that the job has made, and the properties of one that decide its memory: the class, whether it works on
# all parameters at once, and the bytes of its state.
import gc
import inspect
import sys

from ..base import session
from ..model import listed

made: list = []  # weakly


def of(optimizer):
    """Return the class, and whether it works on all parameters at once."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    foreach = group.get("foreach")
    if foreach is None and not group.get("fused") and "foreach" in group:
        foreach = default(optimizer, group)
    return {"optimizer": type(optimizer).__name__, "foreach": bool(foreach)}


def default(optimizer, group):
    """Return what PyTorch, from 2.0 on, uses by default."""
    module = sys.modules.get("torch.optim.optimizer")
    ask = getattr(module, "_default_to_fused_or_foreach", None)
    if ask is None:
        return False
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    return ask(parameters, bool(group.get("differentiable")), use_fused=False)[1]


def zeroes(optimizer):
    """Return whether an optimizer sets gradients to zero by default and does not let them go, as before PyTorch 2.0."""
    given = inspect.signature(type(optimizer).zero_grad).parameters.get("set_to_none")
    return getattr(given, "default", None) is False


def states(optimizer, meter):
    """Return the bytes of the optimizer's state on the device that is measured."""
    away = session.current.away
    total = -away(optimizer) if away is not None else 0
    Tensor = sys.modules["torch"].Tensor
    for held in list(optimizer.state.values()):
        for value in list(held.values()) if isinstance(held, dict) else []:
            value = value if type(value) is Tensor else getattr(value, "_local_tensor", value)
            if isinstance(value, Tensor) and meter.holds(value):
                total += value.numel() * value.element_size()
    return total


def alive():
    """Return the optimizers that were made, and are there still."""
    return [o for o in (each() for each in made) if o is not None]


def trains(optimizer, root):
    """Return whether an optimizer has a parameter of the root."""
    own = listed.ids(root)
    return any(id(p) in own for group in optimizer.param_groups for p in group["params"])


def others(root):
    """Return the bytes of the parameters of other models that the process trains besides the root."""
    known = alive()
    if not any(trains(o, root) for o in known):
        return 0  # a framework has handed on copies
    found = {id(p): p for o in known if not trains(o, root) for group in o.param_groups for p in group["params"]}
    return sum(p.numel() * p.element_size() for p in found.values())


def other_models(root):
    """Return the models besides the root that optimizers of this process train, without the modules in them."""
    own = listed.ids(root)
    known = alive()
    if not any(trains(o, root) for o in known):
        return []
    theirs = {id(p) for o in known for group in o.param_groups for p in group["params"]} - own
    if not theirs:
        return []
    Module = sys.modules["torch"].nn.Module
    found = []
    for each in gc.get_objects():
        if issubclass(type(each), Module):
            ids = {id(p) for p in each.parameters()}
            if ids & theirs and not ids & own:
                found.append(each)
    inner = {id(m) for each in found for m in each.modules() if m is not each}
    return [each for each in found if id(each) not in inner]
