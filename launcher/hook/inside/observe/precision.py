# The precision in which a model is trained: autocast's if the job enters it, else that of
# the weights.
import sys

from ..base import process, wrapping
from ..model import listed, rootstate

hook: dict = {}


def at(root, model):
    """Reports the precision at the root's first call, and listens for autocast inside it."""
    torch = sys.modules["torch"]
    devices = {p.device.type for p in listed.parameters(root)}
    hook.update(torch=torch, devices=devices, weights=weights(torch, root, devices))
    kind = cast(torch, devices)
    if kind is not None:
        process.settle("precision", kind, "torch.autocast", process.LOADER)
    elif hook["weights"] is not None:
        process.settle("precision", hook["weights"], "the weights", process.SHAPE)
    listen(torch)


def cast(torch, devices):
    """Return the word for the autocast that is on, None for none."""
    names = {torch.float16: "fp16", torch.bfloat16: "bf16"}
    return next((names.get(dtype) for kind, on, dtype in rootstate.autocast(torch)[0] if on and kind in devices), None)


def weights(torch, root, devices):
    """Return the word for the weights' type, None where they are of several, or quantised."""
    sizes = {}
    for p in listed.parameters(root):
        sizes[p.dtype] = sizes.get(p.dtype, 0) + p.numel()
    if not sizes or any(not d.is_floating_point for d in sizes) or "transformer_engine" in sys.modules:
        return None
    kind, most = max(sizes.items(), key=lambda pair: pair[1])
    if most < 0.9 * sum(sizes.values()):
        return None
    if kind is torch.float32 and "cuda" in devices and tensor_cores(torch):
        return "tf32"
    return {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}.get(kind)


def tensor_cores(torch):
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except Exception:  # set by two interfaces at once
        return False


def listen(torch):
    """Notes an autocast that the model itself enters, until the first step is over."""
    def __enter__(own, self):
        got = own(self)
        entered()
        return got

    hook["undo"] = wrapping.replace(torch.autocast, "__enter__", __enter__)


@process.guarded
def entered():
    if not process.here() or "done" in hook:
        return
    found = cast(hook["torch"], hook["devices"])
    if found is not None:
        process.settle("precision", found, "torch.autocast", process.LOADER)
        process.save()
        leave()


def leave():
    hook.pop("undo", bool)()
    hook["done"] = True
