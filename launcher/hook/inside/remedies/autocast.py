# bf16 autocast around the forward of the root, its outputs back in fp32, as Accelerate
# does it. It changes numerics: the probe turns it on only where that is permitted.
import torch

from ..model import blocks, exclusions, forwards, listed

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
    if is_enabled(torch, device.type):
        return "the script runs under autocast already"
    return unsupported(torch, device) or forwards.refusal(blocks.unwrap(root))


def unsupported(torch, device):
    if device.type == "cpu":
        return "" if hasattr(torch, "autocast") else "this PyTorch has no autocast"
    if device.type != "cuda":
        return "the model is on the device %s" % device.type
    with torch.cuda.device(device):
        return "" if torch.cuda.get_device_capability(device)[0] >= 8 or torch.version.hip else "the device has no bf16"


def is_enabled(torch, kind):
    if torch.is_autocast_enabled() and kind == "cuda":
        return True
    if kind != "cpu":
        return False
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before PyTorch 2.4
        return torch.is_autocast_cpu_enabled()


def turn(root, value="bf16", tell=None):
    """Turns it on, and returns [old, new]."""
    kind = next(root.parameters()).device.type

    def enter():
        context = torch.autocast(kind, dtype=torch.bfloat16)
        context.__enter__()
        return context

    def failed(e):
        if tell:
            tell("%s: %s" % (type(e).__name__, e))

    model = blocks.unwrap(root)
    forwards.around("autocast", model, enter, lambda context: context.__exit__(None, None, None), convert=to_fp32, failed=failed)
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
    if isinstance(value, dict):
        return mapping(value, {key: to_fp32(item) for key, item in value.items()})
    if hasattr(value, "__dataclass_fields__"):
        return fields(value)
    return value


def mapping(value, items):
    """Return a dict of the same class; transformers' outputs are dicts and dataclasses in one."""
    import copy

    if all(items[key] is value[key] for key in items):
        return value
    new = copy.copy(value)
    for key, item in items.items():
        new[key] = item
    return new


def fields(value):
    import copy

    new = copy.copy(value)
    for name in value.__dataclass_fields__:
        object.__setattr__(new, name, to_fp32(getattr(value, name)))
    return new
