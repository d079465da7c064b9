# What happens between two micro batches of the first optimizer step: gradients are only
# added up there. Where the job changes them, the parameters or the optimizer's numbers after
# each micro batch, a step of more micro batches is another step.
import sys

from . import steps


NUMBERS = ("lr", "weight_decay", "momentum", "eps", "alpha")
PART = 4096  # elements of a parameter that are looked at

state: dict = {"left": None}


def began():
    """Runs before a backward pass; returns what was changed since the one before, "" for nothing."""
    left, state["left"] = state["left"], None
    if left is None:
        return ""
    parameters, gradients, numbers = look()
    if numbers != left[2]:
        return "the optimizer's numbers change from one micro batch to the next (%s)" % change(left[2], numbers)
    if parameters != left[0]:
        return "the parameters are changed between the micro batches of a step"
    if gradients != left[1]:
        return "the gradients are changed between the micro batches of a step"
    return ""


def ended():
    """Runs after a backward pass."""
    state["left"] = look()


def leave():
    state["left"] = None


def look():
    """Return short forms of the parameters, of their gradients, and the optimizers' numbers."""
    torch = sys.modules["torch"]
    optimizers = steps.optimizers()
    all_of = {id(p): p for o in optimizers for group in o.param_groups for p in group["params"]}.values()
    with torch.no_grad():
        parameters = [form(p.detach().reshape(-1)[:PART], torch) for p in all_of]
        gradients = [form(p.grad.reshape(-1), torch) for p in all_of if p.grad is not None and p.grad.layout == torch.strided]
    return values(parameters), values(gradients), [numbers(o) for o in optimizers]


def form(tensor, torch):
    return torch.stack([torch.linalg.vector_norm(tensor, dtype=torch.float32), tensor.sum(dtype=torch.float32)]) if tensor.numel() else tensor.new_zeros(2, dtype=torch.float32)


def values(forms):
    """Brings all forms of a device to the host at once."""
    torch, by = sys.modules["torch"], {}
    for each in forms:
        by.setdefault(each.device, []).append(each)
    return [torch.stack(found).tolist() for _, found in sorted(by.items(), key=str)]


def numbers(optimizer):
    return [{k: float(group[k]) for k in NUMBERS if isinstance(group.get(k), (int, float))} for group in optimizer.param_groups]


def change(before, now):
    """Names the first number that has changed."""
    for one, other in zip(before, now):
        for a, b in zip(one, other):
            for k in a:
                if a[k] != b.get(k):
                    return "%s %.4g, then %.4g" % (k, a[k], b.get(k, 0))
    return "of another optimizer"


def hooked(root):
    """Return which hook may change the gradients of each micro batch, "" for none."""
    for name, p in root.named_parameters():
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            return "a hook may change the gradients of each micro batch (%s)" % name
    for m in root.modules():
        if m._backward_hooks or getattr(m, "_backward_pre_hooks", None):
            return "a hook may change the gradients of each micro batch (%s)" % type(m).__name__
    return ""
