# Scaled dot-product attention in place of scores that are written out, where the class
# of the model offers both. transformers, diffusers and timm each do this differently.
import torch

from ..model import exclusions, forwards, listed

VALUES = ("sdpa",)


def refusal(root, value="sdpa"):
    """Return why it cannot be changed in this model, "" if it can."""
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return "this PyTorch has no scaled dot-product attention"
    excluded = exclusions.reason(root)
    if excluded:
        return excluded
    reasons = [why(host) for host, why, _, _ in hosts(root)]
    if not reasons:
        return "the model's class offers no other attention"
    words = weights_asked(root)
    return words or ("" if "" in reasons else reasons[0])


def turn(root, value="sdpa", tell=None):
    """Changes the attention of all modules where it can be changed, and returns [old, new]."""
    done = []
    try:
        for host, why, change, undo in hosts(root):
            if not why(host):
                done.append((undo, host))
                change(host)
    except BaseException:
        for undo, host in reversed(done):
            undo(host)
        raise
    return ["eager", value]


def weights_asked(root):
    """Return the reason if this call requests the attention's weights, or masks heads."""
    for name, value in forwards.keywords(root).items():
        if name == "output_attentions" and value is True:
            return "the script requests the attention's weights"
        if name.endswith("head_mask") and value is not None:
            return "the script masks heads"
    return ""


def hosts(root):
    """Return each module that has an attention setting: (module, why not, change, undo)."""
    found, covered = [], set()
    for module in listed.modules(root):
        if id(module) in covered:
            continue
        if hasattr(getattr(module, "config", None), "_attn_implementation") and hasattr(module, "_supports_sdpa"):
            found.append((module, of_transformers, set_transformers, reset_transformers))
        elif hasattr(type(module), "set_attn_processor") and hasattr(type(module), "attn_processors"):
            found.append((module, of_diffusers, set_diffusers, reset_diffusers))
        elif type(module).__module__.startswith("timm.") and isinstance(getattr(module, "fused_attn", None), bool):
            found.append((module, of_timm, set_timm, reset_timm))
        else:
            continue
        covered |= {id(m) for m in module.modules()}
    return found


def of_transformers(model):
    kind, now = type(model).__name__, model.config._attn_implementation
    if now not in ("eager", None):
        return "it is %s already" % now
    if getattr(model.config, "output_attentions", False):
        return "the model gives out the attention's weights"
    if not model._supports_sdpa:
        return "%s offers no scaled dot-product attention" % kind
    can = getattr(model, "_can_set_attn_implementation", None)
    if not hasattr(model, "set_attn_implementation") or can is None or not can():
        return "this version of transformers chooses %s's attention when the model is made" % kind
    return ""


def set_transformers(model):
    model.set_attn_implementation("sdpa")
    if model.config._attn_implementation != "sdpa":
        raise RuntimeError("%s kept its attention" % type(model).__name__)


def reset_transformers(model):
    model.set_attn_implementation("eager")


def of_diffusers(model):
    kinds = {type(p).__name__ for p in model.attn_processors.values()}
    if kinds == {"AttnProcessor"}:
        return ""
    if kinds and all(kind.endswith("2_0") for kind in kinds):
        return "it is sdpa already"
    return "the attention's processors are " + ", ".join(sorted(kinds))


def set_diffusers(model):
    from diffusers.models.attention_processor import AttnProcessor2_0

    model.set_attn_processor(AttnProcessor2_0())


def reset_diffusers(model):
    from diffusers.models.attention_processor import AttnProcessor

    model.set_attn_processor(AttnProcessor())


def of_timm(module):
    if module.fused_attn:
        return "it is sdpa already"
    if any(m._forward_hooks or m._forward_pre_hooks for m in module.modules()):
        return "the script looks at the attention's weights"
    return ""


def set_timm(module):
    module.fused_attn = True


def reset_timm(module):
    module.fused_attn = False
