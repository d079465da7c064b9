# The root: the first module that is called in training mode, with gradients, and has
# something to train. Module.__call__ is another function until then, which costs each
# call a tenth of a microsecond; after that it is restored.
import sys
import weakref

from ..base import process, session, wall, wrapping
from . import exclusions, rootcalls

hook: dict = {}


def is_known():
    """Return whether the root was called in this process, or in the one that it is a fork of."""
    return "known" in hook


def through(run):
    """Have run(call, args, kwargs) make the first call of the root, which is under way."""
    hook["through"] = run


def evaluate(call):
    """Have call(plain, module, args, kwargs) make calls without gradients, until the root is known."""
    hook["evaluate"] = call


def arm():
    """Look for the root, until it is found."""
    if is_known():
        return
    torch = sys.modules["torch"]
    Module = torch.nn.Module
    plain = Module.__call__
    enabled = torch.is_grad_enabled
    busy = exclusions.recording(torch)

    def __call__(self, *args, **kwargs):
        if hook["armed"]:
            if not enabled():
                if hook["evaluate"]:
                    return wall.call(plain, evaluates, wall.ALL, self, *args, **kwargs)
            elif self.training:
                return wall.call(plain, arrives, wall.ALL, self, *args, **kwargs)
        return plain(self, *args, **kwargs)

    def evaluates(own, self, *args, **kwargs):
        evaluate = hook["evaluate"]
        if busy() or not is_root(self):
            return own(self, *args, **kwargs)
        hook["evaluate"] = None  # the calls inside are its parts
        try:
            return evaluate(own, self, args, kwargs)
        finally:
            hook["evaluate"] = evaluate

    def arrives(own, self, *args, **kwargs):
        if busy() or not is_root(self):
            return own(self, *args, **kwargs)
        first(self, args, kwargs)
        around = hook.pop("through", None)
        inner = own if around is None else lambda root, *args, **kwargs: around(own, args, kwargs)
        return hook.get("run", called)(inner, self, args, kwargs)

    hook.setdefault("evaluate", None)
    hook.update(armed=True, call=wrapping.like(plain, __call__))
    hook["undo"] = wrapping.placed(Module, "__call__", __call__)


def graded():
    """Return whether something was backpropagated through the root."""
    root = session.current.root()
    return root is not None and any(p.grad is not None for p in root.parameters())


def called(plain, root, args, kwargs):
    return plain(root, *args, **kwargs)


def disarm():
    """Look no longer; return whether it was looked for until now."""
    if not hook.get("armed"):
        return False
    hook["armed"] = False
    # Another tool may have put its function in front, and will restore this one when it is done.
    hook["undo"]()
    return True


def is_root(module):
    """Return whether a module that is called outside all others is the trained model."""
    try:
        worker = sys.modules.get("torch.utils.data._utils.worker")
        if getattr(worker, "_worker_info", None) is not None:
            return False  # this process only loads data
        return any(p.requires_grad for p in module.parameters())
    except Exception:
        return False


def is_call(frame):
    """Return whether a frame is that of a call of a module before the root was seen."""
    return "call" in hook and frame.f_code is hook["call"].__code__


@wall.alone
def first(root, args, kwargs):
    """Have the root looked at, before its first forward."""
    disarm()
    hook.update(known=True, run=rootcalls.run)
    session.current.root = weakref.ref(root)
    process.trains()
    for each in session.current.when_first_called:
        each(root, args, kwargs)
