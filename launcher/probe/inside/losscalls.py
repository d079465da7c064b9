# The calls of PyTorch's cross entropy: how large their logits are, and whether they are computed in
# parts. Every name of the function, imported by the job or not, calls torch._C._nn.cross_entropy_loss,
# which has another function in front for as long.
import sys
import types

from . import exclusions, figures, imports, inputs, losspart, process, ranout, root as root_part

VALUES = ("on",)

KNOB = "loss_parts"
UNSEEN = "no call of cross_entropy had 256 MiB of logits"

state: dict = {"largest": 0, "on": False, "tell": None}  # plain: PyTorch's function, while another is in front


def first(root, args, kwargs):
    """Begin to look at the calls, before the root's first forward."""
    torch = sys.modules["torch"]
    state["expected"] = expected(torch, root, args, kwargs)
    if not replaced(torch):
        listen(torch)


def expected(torch, root, args, kwargs):
    """Return the bytes that logits for each token may have; 0 where the input has no tokens."""
    tokens = inputs.largest(args, kwargs)
    if type(tokens) is not torch.Tensor or tokens.is_floating_point():
        return 0
    width, _ = figures.widest(list(root.modules()))
    return tokens.numel() * width * 4


def refusal(root, value=None):
    """Return why it cannot be turned on for this model, "" if it can. Without a value: why it would not help."""
    torch = sys.modules["torch"]
    excluded = exclusions.reason(root)
    if excluded:
        return excluded
    other = replaced(torch)
    if other:
        return "cross_entropy is replaced by %s" % other
    if state["on"]:
        return "it is on already"
    large = value or max(state["largest"], state.get("expected", 0)) >= losspart.LEAST
    return "" if large else UNSEEN


def replaced(torch):
    """Return the owner of a cross_entropy that replaces PyTorch's, "" for PyTorch's own."""
    functional = torch.nn.functional
    own = getattr(functional, "cross_entropy", None)
    if getattr(getattr(own, "__code__", None), "co_filename", "") != functional.__file__:
        return str(getattr(own, "__module__", None) or type(own).__module__)
    called = getattr(torch._C._nn, "cross_entropy_loss", None)
    if called is None:
        return "this PyTorch, which has no cross_entropy_loss"
    return "" if isinstance(called, types.BuiltinFunctionType) or getattr(called, "gpurun", False) else str(called.__module__)


def turn(root, value="on", tell=None):
    """Compute large cross entropies in parts, and return [old, new]."""
    listen(sys.modules["torch"])
    state.update(on=True, tell=tell)
    losspart.made["changed"] = lambda: give_up("the job writes to the logits after the loss")
    return ["off", value]


def give_up(reason):
    state["on"] = False
    if state["tell"]:
        state["tell"](reason)


def listen(torch):
    if "plain" in state:
        return
    plain = torch._C._nn.cross_entropy_loss
    compiling, tensors = root_part.compiling(torch), (torch.Tensor, torch.nn.Parameter)

    def cross_entropy_loss(*args, **kwargs):
        if kwargs or len(args) != 6 or type(args[0]) not in tensors or compiling():
            return plain(*args, **kwargs)
        seen(losspart.size(args[0]))
        if state["on"] and losspart.works(torch, *args):
            return in_parts(plain, args)
        return plain(*args)

    mine = imports.like(plain, cross_entropy_loss)
    mine.__dict__["gpurun"] = True
    state.update(plain=plain, mine=mine)
    torch._C._nn.cross_entropy_loss = mine
    if getattr(torch.jit._builtins, "_builtin_table", None) is not None:
        torch.jit._builtins._register_builtin(mine, "aten::cross_entropy_loss")  # for torch.jit.script


def in_parts(plain, args):
    try:
        return losspart.cross_entropy(plain, *args)
    except Exception as e:
        if ranout.is_one(e):
            raise
        reason = "%s: %s" % (type(e).__name__, str(e)[:200])
    found = plain(*args)  # or the job's own error
    give_up(reason)
    return found


@process.guarded
def seen(size):
    if size <= state["largest"]:
        return
    before, state["largest"] = state["largest"], size
    if before < losspart.LEAST <= size and (process.told.get("refused") or {}).get(KNOB) == UNSEEN:
        del process.told["refused"][KNOB]
        process.save()


def stepped():
    """Called before the first optimizer step: small calls are not looked at any more."""
    if state["largest"] < losspart.LEAST and not state["on"] and KNOB not in (process.told.get("refused") or {}):
        process.note("refused", {KNOB: UNSEEN})
    if state["largest"] < losspart.LEAST // 8 and not state["on"]:
        leave()


def leave():
    nn = sys.modules["torch"]._C._nn
    if "plain" in state and nn.cross_entropy_loss is state["mine"]:
        nn.cross_entropy_loss = state["plain"]
        del state["plain"], state["mine"]
