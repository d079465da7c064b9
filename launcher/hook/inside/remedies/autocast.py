# bf16 autocast around the forward of the root, its outputs back in fp32, as Accelerate
# does it. It changes numerics: the probe turns it on only where that is permitted.
import copy

import torch

from ..model import blocks, exclusions, forwards, listed, rootstate

VALUES = ("bf16",)


def refusal(root, value="bf16"):
    """Return why it cannot be turned on for this model, "" if it can."""
    excluded = exclusions.reason(root)
    if excluded:
        return excluded
    if forwards.is_wrapped("autocast", blocks.unwrap(root)):
        return "it is on already"
    dtypes = {p.dtype for p in listed.parameters(root) if p.is_floating_point()}
    if not dtypes:
        return "the model has no parameters"
    if dtypes != {torch.float32}:
        return "the weights are not all fp32 but " + ", ".join(sorted(str(d).replace("torch.", "") for d in dtypes))
    if exclusions.is_sharded(root) or hasattr(root, "zero_optimization"):
        return "FSDP and DeepSpeed have their own precision"
    device = next(root.parameters()).device
    if any(kind == device.type and on for kind, on, _ in rootstate.autocast(torch)[0]):
        return "the script runs under autocast already"
    return unsupported(device) or forwards.refusal(blocks.unwrap(root))


def unsupported(device):
    if device.type not in ("cpu", "cuda"):
        return "the model is on the device %s" % device.type
    known = device.type == "cpu" or torch.version.hip or torch.cuda.get_device_capability(device)[0] >= 8
    return "" if known else "the device has no bf16"


def turn(root, value="bf16", tell=None):
    """Turns it on, and returns [old, new]."""
    kind = next(root.parameters()).device.type
    forwards.around("autocast", blocks.unwrap(root), lambda: torch.autocast(kind, dtype=torch.bfloat16), convert=to_fp32)
    return ["fp32", value]


def to_fp32(value):
    """Return a forward's output with its 16-bit tensors in 32 bits, in the same containers."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
    if isinstance(value, (list, tuple)):
        items = [to_fp32(item) for item in value]
        if all(new is old for new, old in zip(items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    fields = dict(value) if isinstance(value, dict) else {name: getattr(value, name) for name in getattr(value, "__dataclass_fields__", ())}
    made = {key: to_fp32(item) for key, item in fields.items()}
    if all(made[key] is fields[key] for key in fields):
        return value
    new = copy.copy(value)  # transformers' outputs are dictionaries and dataclasses in one
    for key, item in made.items():
        if isinstance(value, dict):
            new[key] = item
        else:
            object.__setattr__(new, key, item)
    return new
