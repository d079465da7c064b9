# The settings of a model's own switches: activation checkpointing, attention, and how it is
# spread over the ranks.
import sys

from ..base import process, session, words, wrapping
from ..model import exclusions

hook: dict = {}


def at(root, model):
    """Reports the settings at the root's first call, and listens for checkpointing inside it."""
    settle, by = process.settle, type(model).__name__
    on = None
    for name in ("is_gradient_checkpointing", "grad_checkpointing"):
        value = getattr(model, name, None)
        on = value if isinstance(value, bool) else on
    if on is not None:
        settle("activation_checkpointing", "full" if on else "none", by, process.MODEL)
    kind = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(kind, str):
        settle("attention", words.word("attention", "", kind), by, process.MODEL)
    settle("sharding", sharding(root), by, process.ARGUMENT)
    listen(sys.modules.get("torch.utils.checkpoint"))


# What is called in torch.utils.checkpoint for each block that is to be recomputed: with
# reentrant autograd, and without it, before PyTorch 2.1 and since.
CALLED = (("CheckpointFunction", "forward"), ("", "_checkpoint_without_reentrant"), ("_CheckpointFrame", "__init__"))

# Libraries with their own recomputation.
OTHERS = ("megatron", "fairscale", "deepspeed.runtime.activation_checkpointing", "xformers.checkpoint")


def listen(module):
    """Notes a model that calls torch.utils.checkpoint itself, until the first step."""
    hook.update(heard=False, undo=[])
    for name, function in CALLED if module is not None else ():
        owner = getattr(module, name, None) if name else module
        if owner is not None and hasattr(owner, function):
            hook["undo"].append(wrapping.replace(owner, function, hearing, static=function == "forward"))


def hearing(own, *args, **kwargs):
    heard()
    return own(*args, **kwargs)


@process.guarded
def heard():
    if hook["heard"] or session.current.active or session.current.repeating or not process.here():
        return
    hook["heard"] = True
    process.settle("activation_checkpointing", "full", "torch.utils.checkpoint", process.LOADER)
    process.save()


def leave():
    """Called when the first step comes: a model that has not recomputed by now does not."""
    if "undo" not in hook:
        return
    for undo in hook.pop("undo"):
        undo()
    if not hook["heard"] and not any(name in sys.modules for name in OTHERS):
        process.settle("activation_checkpointing", "none", "torch.utils.checkpoint", process.SHAPE)


def sharding(root):
    """Return how the model is spread over the ranks, None where that is not known."""
    if exclusions.is_sharded(root):
        return "fsdp"
    if type(root).__name__ == "DeepSpeedEngine":
        return None  # its own part tells
    if type(root).__name__ == "DistributedDataParallel" or process.world() <= 1:
        return "none"
    return None
