# Whether samples depend on each other in the loss, and whether the micro batches of an
# optimizer step are computed alike, checked in the first steps. What the job computes
# between its DataLoader and the backward pass is noted (tape.py) and computed again with other
# samples (replay.py); of the root's forward a few rows are run (rows.py).
import sys
import threading
import weakref

from . import between, huggingface, loss as loss_part, process, replay, rootcalls, rows, split, steps, tape as tapes, trainerloss

Tape, Call, Ref, Unproven, version = tapes.Tape, tapes.Call, tapes.Ref, tapes.Unproven, tapes.version

BATCHES = 3  # that may be drawn in vain before the first call of the root, as by an evaluation
MOST_NUMBERS = 64

state: dict = {"leaves": {}, "tape": None, "mode": None, "vain": 0, "batches": 0, "rows": 0, "loader": False, "root": None, "module": None, "calls": [], "over": False}


def recorder(torch):
    """Return the mode that notes all operations."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls):
            return False  # it would import torch._dynamo

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs, tape, given = kwargs or {}, state["tape"], None
            if tape is not None and not tape.why and tape.thread == threading.get_ident():
                given = attempt(tape, lambda: (tape.refs(args), {k: tape.refs(v) for k, v in kwargs.items()}))
                grad = torch.is_grad_enabled()
            out = func(*args, **kwargs)
            if given is not None:
                attempt(tape, lambda: tape.add(func, args, kwargs, given, out, grad, tapes.place()))
            return out

    return Recorder()


def attempt(tape, function):
    try:
        return function()
    except Unproven as e:
        tape.fail(str(e))
    except Exception as e:
        tape.fail("%s: %s" % (type(e).__name__, str(e)[:100]))


def modes():
    """Return PyTorch's part that has the modes, None before PyTorch 1.13."""
    try:
        import torch.utils._python_dispatch as dispatch

        return dispatch if hasattr(dispatch, "_get_current_dispatch_mode_stack") else None
    except ImportError:
        return None


def push():
    """Begins to note operations, where no other mode of the kind is at work."""
    torch, tape, dispatch = sys.modules["torch"], state["tape"], modes()
    if tape is None or tape.why or state["mode"] is not None:
        return
    if dispatch is None or dispatch._get_current_dispatch_mode_stack():
        tape.fail("the job listens to PyTorch's operations itself" if dispatch else "PyTorch is older than 1.13")
        return
    compiled = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", None) or {}
    if any(backend is not None for backend in compiled.values()):
        tape.fail("a part of the job is compiled")
        return
    mode = recorder(torch)
    mode.__enter__()
    state["mode"] = mode


def pop():
    """Ends to note operations; modes that the job began since stay."""
    mode, state["mode"] = state["mode"], None
    if mode is None:
        return
    dispatch, above = modes(), []
    while dispatch._get_current_dispatch_mode_stack() and dispatch._get_current_dispatch_mode_stack()[-1] is not mode:
        above.append(dispatch._pop_mode())
    if dispatch._get_current_dispatch_mode_stack():
        mode.__exit__(None, None, None)
    for other in above[::-1]:
        dispatch._push_mode(other)
    if above and state["tape"] is not None:
        state["tape"].fail("the job listens to PyTorch's operations itself")


@process.guarded
def drawing():
    """Runs before a DataLoader makes a batch: what it computes is not the loop's."""
    pop()


@process.guarded
def drawn(batch):
    """Runs after a DataLoader has given a batch."""
    if state["over"] or not process.here():
        return
    found, leaves = tensors_of(batch, 0), state["leaves"]
    for key in [key for key, held in leaves.items() if held() is None]:
        del leaves[key]
    leaves.update((id(t), weakref.ref(t)) for t in found)
    sizes = {t.shape[0] for t in found if t.dim()}
    state.update(loader=True, rows=sizes.pop() if len(sizes) == 1 else 0)
    tape = state["tape"]
    if tape is None or tape.why or any(isinstance(op, Call) for op in tape.ops):
        pop()
        state["tape"] = None
        state["vain"] += state["root"] is None
        if state["vain"] <= BATCHES:
            state["tape"] = Tape(state["leaves"], state["rows"])
    push()


def tensors_of(value, depth):
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return [value]
    if depth > 4 or not isinstance(value, (dict, list, tuple)) and not hasattr(value, "values"):
        return []
    return [t for each in (list(value.values()) if hasattr(value, "values") else value) for t in tensors_of(each, depth + 1)]


class Root:
    """Listens to the root's calls."""

    def __init__(self, answer):
        self.answer, self.call = answer, None

    def begin(self, args, kwargs):
        process.guarded(self.began)(args, kwargs)

    def began(self, args, kwargs):
        pop()
        given, tape = self.tensors((list(args), dict(kwargs))), state["tape"]
        if tape is None and not state["over"]:
            if not state["loader"]:  # the root's arguments are the batch
                largest = max([t for t in given if t.dim()], key=lambda t: t.numel(), default=None)
                state["rows"] = 0 if largest is None else largest.shape[0]
            tape = state["tape"] = Tape(state["leaves"], state["rows"], state["loader"])
        if tape is None or tape.why:
            return
        if sum(isinstance(op, Call) for op in tape.ops) == tapes.MOST_CALLS:
            tape.fail("the model is called often before a backward pass")
            return
        torch = sys.modules["torch"]
        self.call = Call([Ref(tape.number(t)) for t in given], state["module"]().training and torch.is_grad_enabled())

    def end(self, output=None):
        process.guarded(self.ended)(output)

    def ended(self, output):
        tape, call, self.call = state["tape"], self.call, None
        if tape is None or call is None:
            return
        for t in self.tensors(output):
            n = tape.give(t)
            tape.tensors[n], tape.versions[n] = t, version(t)
            call.outs.append(n)
        if not tape.why:
            tape.ops.append(call)
            push()

    def failed(self):
        pop()
        state["tape"] = self.call = None

    def tensors(self, value):
        try:
            return rows.tensors(value)
        except rows.Unknown as e:
            if state["tape"] is not None:
                state["tape"].fail(str(e))
            return []


def ask(root, args, kwargs):
    """Runs a few rows through the root, before its first call and before memory is measured."""
    pop()
    state["answer"] = split.look(root, args, kwargs)


def first(root, args, kwargs):
    """Begins with the root's first call, and gives what listens to its calls."""
    answer = state.pop("answer")
    state.update(root=Root(answer), module=weakref.ref(root))
    tell_numbers({})
    if answer.word == "no":
        say("no", answer.reason)
    state["root"].begin(args, kwargs)
    return state["root"]


def tell_numbers(more):
    """Reports the numbers with which the job trains that its batch should not change, where its
    optimizers begin again."""
    optimizers = steps.optimizers()
    if any(o.state for o in optimizers):
        return
    found = {}
    for o in optimizers:
        for i, group in enumerate(between.numbers(o)[:4]):
            for name, value in group.items():
                found["%s of %s%s" % (name, type(o).__name__, " (group %d)" % i if i else "")] = value
    found.update(more)
    loss_part.say(numbers={k: v for k, v in list(found.items())[:MOST_NUMBERS] if abs(v) < float("inf")})


@process.guarded
def backward(loss, strange):
    """Runs before a backward pass: it is shown that the loss is a sum of its samples' parts."""
    pop()
    tape, state["tape"] = state["tape"], None
    state["calls"].append(sum(op.trains for op in tape.ops if isinstance(op, Call)) if tape is not None else 0)
    if rootcalls.state.get("compiling", bool)():
        leave()  # a CUDA graph is recorded: what is computed now would become part of it
    if state["over"] or state["root"] is None or loss_part.known().get("rows") == "no":
        return
    try:
        judge(tape, loss, strange)
    except replay.Coupled as e:
        say("no", str(e))
    except Unproven as e:
        say("unknown", str(e))
    except Exception as e:
        say("unknown", "the loss could not be computed again: %s: %s" % (type(e).__name__, str(e)[:150]))


def judge(tape, loss, strange):
    root = state["root"]
    alike = not huggingface.trainers  # a Trainer is known to divide a step well
    why = alike and (between.hooked(state["module"]()) or between.began())
    if why:
        raise replay.Coupled(why)
    if strange or tape is None:
        state["unseen"] = True
    if state.get("unseen"):
        raise Unproven("a backward pass was not seen from its beginning")
    ops = tape.cone(loss)
    now = tapes.signature(tape, ops)
    why = alike and tapes.differs(state.setdefault("signature", now), now)
    if why:
        raise replay.Coupled(why)
    state["batches"] += 1
    if state["batches"] > 2:
        return
    if state["batches"] == 1:
        tell_numbers(tapes.constants(tape, ops, loss, state["rows"]))
    if root.answer.word == "unknown":
        raise Unproven(root.answer.reason)
    if state["rows"] < 2:
        raise Unproven("a batch of one row cannot be divided" if state["rows"] else "the tensors of a batch have several lengths")
    replay.prove(tape, ops, loss, state["rows"], root.answer.dims)
    say("yes", "")


@process.guarded
def after():
    """Runs after a backward pass."""
    if not state["over"] and state["root"] is not None and not trainerloss.is_sharded(state["module"]()):
        between.ended()


def say(word, reason):
    loss_part.say(rows=word, rows_reason=reason)


def step():
    """Runs before an optimizer step: what follows may be computed with other numbers. Returns
    how often the root was called for each backward pass."""
    state.pop("signature", None)
    between.leave()
    calls, state["calls"] = state["calls"], []
    return calls


def leave():
    """Ends with the first optimizer steps."""
    pop()
    root = state["root"]
    state.update(over=True, tape=None, leaves={}, root=None)
    step()
    if root is not None:
        rootcalls.leave(root)
