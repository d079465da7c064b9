# Scaled dot-product attention in place of scores that are written out, in models of transformers that offer both. Those
# of diffusers and timm have it wherever PyTorch does.
import torch

from ..model import exclusions, listed

VALUES = ("sdpa",)
asked: dict = {}  # the keyword arguments of the root's call that is under way


def refusal(root, value="sdpa"):
    """Return why it cannot be changed in this model, "" if it can."""
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return "this PyTorch has no scaled dot-product attention"
    reasons = [unfit(model) for model in models(root)]
    return exclusions.reason(root) or weights_asked() or ("" if "" in reasons else reasons[0] if reasons else "the model's class offers no other attention")


def turn(root, value="sdpa", tell=None):
    """Changes the attention of all models where it can be changed, and returns [old, new]."""
    done = []
    try:
        for model in models(root):
            if not unfit(model):
                done.append(model)
                model.set_attn_implementation("sdpa")
                if model.config._attn_implementation != "sdpa":
                    raise RuntimeError("%s kept its attention" % type(model).__name__)
    except BaseException:
        for model in reversed(done):
            model.set_attn_implementation("eager")
        raise
    return ["eager", value]


def weights_asked():
    """Return the reason if this call requests the attention's weights, or masks heads."""
    for name, value in asked.items():
        if name == "output_attentions" and value is True:
            return "the script requests the attention's weights"
        if name.endswith("head_mask") and value is not None:
            return "the script masks heads"
    return ""


def models(root):
    """Return the outermost modules that have a setting for attention."""
    found, covered = [], set()
    for module in listed.modules(root):
        if id(module) not in covered and listed.has(module, "config") and hasattr(module.config, "_attn_implementation") and hasattr(module, "_supports_sdpa"):
            found.append(module)
            covered |= {id(m) for m in module.modules()}
    return found


def unfit(model):
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
