# Examines the root module once: at its first call in training, before its forward.
from ..base import process, session, wall
from ..model import blocks, exclusions, figures, listed
from ..observe import huggingface, lightning, loaders, memory, precision, steps, switches
from ..remedies import attention, losscalls, rungs, split
from ..guard import inplace



def first(root, args, kwargs):
    """Examines the root before its first forward, and applies what gpurun ordered."""
    if any(kind.__name__ == "UninitializedParameter" for kind in listed.classes(listed.parameters(root))):
        process.save()  # a lazy model has no size before its first forward: it is left alone
        return
    model = blocks.unwrap(root)
    told = process.told
    told["model"] = {"class": type(model).__name__, "parameters": 0, "blocks": []}
    attention.asked = kwargs
    try:
        with process.together(), listed.once():
            looks(root, model, args, kwargs)
    finally:
        attention.asked = {}


def looks(root, model, args, kwargs):
    told = process.told
    for look in (
        lambda: told.update(model=model_of(root, model)),
        lambda: precision.at(root, model),
        lambda: switches.at(root, model),
        lambda: loaders.first(args, kwargs),
        lambda: huggingface.first(),
        lambda: lightning.first(),
        lambda: losscalls.first(root, args, kwargs),
        lambda: split.planned(root, args, kwargs),
        lambda: turn(root),
        lambda: memory.first(root, model, exclusions.compiled(root), args, kwargs),
        lambda: steps.first(root, exclusions.compiled(root), args, kwargs),
        lambda: inplace.first(root),
    ):
        wall.alone(look)()  # what fails keeps the others from nothing


def turn(root):
    """Reports which remedies work inside the process, and applies the ordered ones."""
    told, orders = process.told, process.orders()
    told["refused"] = {knob: why for knob, why in rungs.survey(root).items() if why}
    wanted = orders.get("turn")
    if not wanted or not orders.get("hooks"):
        return
    made = rungs.apply(root, wanted, given_up, lambda: session.current.steps)
    listed.again()
    for key in ("refused", "applied", "failed"):
        process.note(key, made.get(key) or {})
    short = {"activation_checkpointing": "checkpointing", "offload_activations": "activation offload", "loss_parts": "cross entropy in parts",
             "forward_parts": "parts of the forward", "offload_optimizer": "optimizer offload"}
    for knob, pair in (made.get("applied") or {}).items():
        session.current.turned.add(knob)
        process.settle(knob, pair[1], "gpurun", process.GPURUN)
        words = "%s %s→%s" % (short.get(knob, knob), pair[0], pair[1])
        if knob == "activation_checkpointing" and told["model"]["blocks"]:
            words += " (%s)" % ", ".join("%d %s" % (b["count"], b["class"]) for b in told["model"]["blocks"])
        process.say(words)


def given_up(knob, reason):
    """Called when a remedy has to be removed in a later step."""
    process.note("failed", {knob: str(reason)})
    (process.told.get("applied") or {}).pop(knob, None)
    process.settle(knob, None, "", process.GPURUN)
    process.save()


def model_of(root, model):
    return {
        "class": type(model).__name__, "parameters": sum(map(figures.size, listed.parameters(root))), "compiled": exclusions.compiled(root),
        "switch": switch(model), "blocks": [{k: b[k] for k in ("path", "class", "count")} for b in blocks.find(root)],
    }


def switch(model):
    for name in ("gradient_checkpointing_enable", "enable_gradient_checkpointing", "set_grad_checkpointing"):
        if callable(getattr(model, name, None)):
            return name
    return ""
