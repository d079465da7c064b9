# The root: the first module that is called in training mode, with gradients, and has
# something to train. Module.__call__ is another function until then, which costs each
# call a tenth of a microsecond; from then on it is what it was.
import functools
import sys

process = load("process")
torch = None
hook = {}


def arriving(name, _):
    """Steps aside for torch._dynamo, which keeps what it finds at its import."""
    if not hook.get("armed"):
        return False
    disarm()
    return True


def arrived(name, module):
    """Is told that torch, or torch._dynamo, is there."""
    global torch
    if name != "torch":
        if not hook.get("known"):
            arm()
        return
    if module is None:
        return
    torch = module
    arm()
    late(sys.modules["torch.utils.data.dataloader"].DataLoader, "__iter__", "loaders")
    late(sys.modules["torch.optim.optimizer"].Optimizer, "__init__", "steps")
    if process.orders().get("calls"):
        load("calls").arrived(name, module)


def late(kind, name, part):
    """Arms a part when a class's method is called for the first time."""
    plain = getattr(kind, name)

    @functools.wraps(plain)
    def first(self, *args, **kwargs):
        if getattr(kind, name) is first:
            setattr(kind, name, plain)
            process.guarded(lambda: load(part).arm(torch))()
            return getattr(kind, name)(self, *args, **kwargs)
        return plain(self, *args, **kwargs)

    setattr(kind, name, first)


def arm():
    Module = torch.nn.Module
    plain = Module.__call__
    enabled = torch.is_grad_enabled
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)

    def __call__(self, *args, **kwargs):
        if hook["armed"] and self.training and enabled() and not compiling() and is_root(self):
            first(self, args, kwargs)
        return plain(self, *args, **kwargs)

    hook.update(armed=True, plain=plain, call=__call__)
    Module.__call__ = load("imports").like(plain, __call__)


def disarm():
    hook["armed"] = False
    # Another one may have put its own in front, and will put this back when it is done.
    if torch.nn.Module.__call__ is hook["call"]:
        torch.nn.Module.__call__ = hook["plain"]


def is_root(module):
    """Tells whether a module that is called, outside all others, is what is trained."""
    try:
        if load("loaders").in_worker():
            return False
        return any(p.requires_grad for p in module.parameters())
    except Exception:
        return False


@process.guarded
def first(root, args, kwargs):
    """Hands over to the part that looks at the root, before its first forward."""
    disarm()
    hook["known"] = True
    process.trains()
    load("model").first(root, args, kwargs)
