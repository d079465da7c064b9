# The properties of the optimizer that decide its memory: the class, whether it works on all parameters at
# once, and the bytes of its state.
import inspect
import sys


def of(optimizer):
    """Return the class, foreach and fused."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    fused, foreach = group.get("fused"), group.get("foreach")
    if foreach is None and not fused and "foreach" in group:
        foreach = default(optimizer, group)
    return {"optimizer": type(optimizer).__name__, "foreach": bool(foreach), "fused": bool(fused)}


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
    total = 0
    for held in list(optimizer.state.values()):
        for value in list(held.values()) if isinstance(held, dict) else []:
            value = getattr(value, "_local_tensor", value)
            if hasattr(value, "element_size") and meter.holds(value):
                total += value.numel() * value.element_size()
    return total
