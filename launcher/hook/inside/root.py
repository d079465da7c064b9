# The root: the first module that is called in training mode, with gradients, and has
# something to train. Module.__call__ is another function until then, which costs each
# call a tenth of a microsecond; after that it is restored.
import functools
import sys
import weakref

from . import calls, exclusions, loaders, losscalls, model, process, rank, rootcalls, scratch, snapshot, stacks, steps, wall, wrapping

torch = None
hook: dict = {}


def arriving(name, _):
    """Steps aside for torch._dynamo, which keeps what it finds at its import."""
    if not hook.get("armed"):
        return False
    disarm()
    return True


def arrived(name, module):
    """Called when torch, or torch._dynamo, is there."""
    global torch
    if name != "torch":
        if not hook.get("known"):
            arm()
        return
    if module is None:
        return
    torch = module
    rank.note(process.start["told"]["GPURUN_PROBE_FILE"], "torch")
    if process.start["role"] == "passer":  # it may fail before it trains
        told = process.start["told"]
        process.start["watch"](lambda: process.file("probe.json"), told["GPURUN_PROBE_NAMES"])
    arm()
    late(sys.modules["torch.utils.data.dataloader"].DataLoader, "__iter__", loaders)
    late(sys.modules["torch.optim.optimizer"].Optimizer, "__init__", steps)
    wall.alone(lambda: scratch.arrived(torch))()
    wall.alone(lambda: losscalls.before_root(torch))()
    if process.orders().get("stalls"):
        wall.alone(lambda: stacks.arm(process.orders()["stalls"]))()
    if process.orders().get("record"):
        wall.alone(lambda: snapshot.arrived(torch))()
    if process.orders().get("calls"):
        calls.arrived(name, module)


def late(kind, name, part):
    """Arms a part when a class's method is called for the first time."""
    plain = getattr(kind, name)

    def arms(own, self, *args, **kwargs):
        if getattr(kind, name) is first:
            setattr(kind, name, plain)
            wall.alone(lambda: part.arm(torch))()
            return wall.inner(own, getattr(kind, name), self, *args, **kwargs)
        return own(self, *args, **kwargs)

    first = functools.wraps(plain)(wall.wrapped(plain, arms))
    setattr(kind, name, first)


def arm():
    Module = torch.nn.Module
    plain = Module.__call__
    enabled = torch.is_grad_enabled
    busy = compiling(torch)

    def __call__(self, *args, **kwargs):
        if hook["armed"] and self.training and enabled():
            return wall.call(plain, arrives, wall.ALL, self, *args, **kwargs)
        return plain(self, *args, **kwargs)

    def arrives(own, self, *args, **kwargs):
        if busy() or not is_root(self):
            return own(self, *args, **kwargs)
        first(self, args, kwargs)
        through = hook.pop("through", None)  # what is put around the root's calls counts for this one, too
        inner = own if through is None else lambda root, *args, **kwargs: through(own, args, kwargs)
        return hook.get("run", called)(inner, self, args, kwargs)

    hook.update(armed=True, plain=plain, call=wrapping.placed(Module, "__call__", wrapping.like(plain, __call__)))


def graded():
    """Return whether something was backpropagated through the root."""
    root = hook.get("root", lambda: None)()
    return root is not None and any(p.grad is not None for p in root.parameters())


def called(plain, root, args, kwargs):
    return plain(root, *args, **kwargs)


def compiling(torch):
    """Return a function that reports whether a call is only recorded, by torch.compile,
    torch.jit.trace or a CUDA graph: what the probe then did would become part of it, and to
    ask for an event's time makes the recording of a CUDA graph fail."""
    compiles = getattr(getattr(torch, "compiler", None), "is_compiling", None) or exclusions.compiling
    tracing = getattr(torch._C, "_get_tracing_state", None) or (lambda: None)
    cuda = torch.cuda
    if not hasattr(cuda, "is_current_stream_capturing"):  # before 1.12
        return lambda: compiles() or tracing() is not None
    used: list = []

    def busy():
        if compiles() or tracing() is not None:
            return True
        if not used:  # only where CUDA is in use: the query itself would initialise it
            if not cuda.is_initialized():
                return False
            used.append(True)
        return cuda.is_current_stream_capturing()

    return busy


def disarm():
    hook["armed"] = False
    # Another tool may have put its function in front, and will restore this one when it is done.
    if torch.nn.Module.__call__ is hook["call"]:
        torch.nn.Module.__call__ = hook["plain"]


def is_root(module):
    """Return whether a module that is called outside all others is the trained model."""
    try:
        if loaders.in_worker():
            return False
        return any(p.requires_grad for p in module.parameters())
    except Exception:
        return False


def is_call(frame):
    """Return whether a frame is that of a call of a module before the root was seen."""
    return "call" in hook and frame.f_code is hook["call"].__code__


@wall.alone
def first(root, args, kwargs):
    """Hands over to the part that looks at the root, before its first forward."""
    disarm()
    hook["known"], hook["root"] = True, weakref.ref(root)
    hook["run"] = rootcalls.run
    process.trains()
    model.first(root, args, kwargs)
