# How transformers' Trainer scales its loss with another accumulation, asked of a process that ran out
# of memory and ends: its own training_step is run with two rows of the latest batch and without
# gradients, and what it would pass to the backward pass is compared: with more micro batches, with
# twice the items, and with each row twice. Nothing of that is left behind.
import contextlib
import sys
import weakref

from ..base import process
from ..model import blocks, callstate, exclusions, modulestate, places
from . import loss


ROWS = 2  # losses that compare samples are 0 with one
MORE = 3  # times as many micro batches, of twice the items: 2 and 3 tell which counts


state: dict = {"latest": None}


def note(trainer, step, model, inputs, items):
    """Keeps what the latest training_step was called with, and no copy of it."""
    state["latest"] = weakref.ref(trainer), step, weakref.ref(model), inputs, items


def forget():
    """Lets the latest batch go once its step has ended."""
    state["latest"] = None


def question():
    """Return what asks the process that ends how its loss is scaled, None where that is known or there is no
    Trainer. It reports by loss.scale."""
    latest = state["latest"]
    if latest is None or loss.known().get("scale"):
        return None
    trainer, model = latest[0](), latest[2]()
    if trainer is None or model is None:
        return None
    return lambda: answer(trainer, latest[1], model, latest[3], latest[4])


def answer(trainer, step, model, inputs, items):
    """Asks. A failure leaves the scale unknown."""
    try:
        why = unfit(trainer, model)
        loss.scale(*(("", why) if why else ask(trainer, step, model, inputs, items)))
    except Exception as e:
        loss.scale("", "the loss of two rows could not be computed: %s: %s" % (type(e).__name__, str(e)[:150]))


def unfit(trainer, model):
    """Return why training_step cannot be run for a try, "" if it can."""
    kind = type(trainer)
    if not kind._prepare_inputs.__module__.startswith("transformers."):
        return "%s prepares its batches with its own function" % kind.__name__
    shards = getattr(trainer.accelerator, "parallelism_config", None)
    if shards is not None and (getattr(shards, "cp_enabled", False) or getattr(shards, "sp_enabled", False)):
        return "the ranks share the tokens of a sample"
    if exclusions.compiled(model) and not hasattr(sys.modules["torch"].compiler, "set_stance"):
        return "the model is compiled"
    return ""


def ask(trainer, step, model, inputs, items):
    """Return (scale, reason, weighted)."""
    shared = exclusions.is_shared_out(model)
    model, name = model if shared else blocks.unwrap(model), type(blocks.unwrap(model)).__name__
    # Ranks that wait for each other in a forward must all make as many: there the batch is
    # taken whole, as the job itself does next.
    few, each_twice = (inputs, None) if shared else rows(inputs)
    twice = None if items is None else 2 * items
    run = Run(trainer, step, model)
    one, more = run(few, items, 1), run(few, twice, MORE)
    doubled = None
    if each_twice is not None:
        doubled = run(each_twice, items, 1)
    elif process.world() > 1 and not shared:
        run(few, items, 1)
    return judge(one, more, doubled, items is not None, run.exact, name)


def judge(one, more, doubled, counted, exact, name):
    """Judges three losses: as they are, for more micro batches, and with each row twice."""
    if not (one and abs(one) < float("inf")):
        return "", "the loss of two rows is %s" % one

    def near(value, times):
        return abs(value / one * times - 1) <= (1e-4 if exact else 2e-2)

    if counted and near(more, 2):
        if doubled is not None and not near(doubled, 0.5):
            return "wrong", "the loss of %s is divided by num_items_in_batch, but is no sum over the rows" % name
        return "kept", "the loss is a sum that is divided by the items of all micro batches (num_items_in_batch)", True
    if near(more, 1):
        why = "computes its loss without num_items_in_batch" if counted else "has its own loss"
        return "wrong", "%s %s, and Trainer does not divide it by the accumulation" % (name, why)
    if not near(more, MORE):
        return "wrong", "only a part of the loss of %s is divided by the accumulation" % name
    if doubled is None:
        return "", "the rows of a batch cannot be distinguished"
    if near(doubled, 0.5):
        return "wrong", "the loss of %s is a sum over the rows, and Trainer divides it by the accumulation" % name
    if not near(doubled, 1):
        return "wrong", "the loss of %s is no mean over its rows: it compares them" % name
    return "kept", "the loss is a mean, and Trainer divides it by the accumulation"


def rows(inputs):
    """Return the first rows of a batch, and the same with each row twice; the whole batch and
    None where its tensors are not all of as many rows."""
    torch = sys.modules["torch"]
    values = list(inputs.values()) if hasattr(inputs, "values") else []
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    sizes = {len(v) if v.dim() else 0 for v in tensors}
    if len(sizes) != 1 or 0 in sizes or any(isinstance(v, (list, tuple, dict)) for v in values):
        return inputs, None

    def cut(change):
        return {k: change(v) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}

    return cut(lambda v: v[:ROWS]), cut(lambda v: torch.cat([v[:ROWS], v[:ROWS]]))


class Run:
    """Runs training_step up to the backward pass."""

    def __init__(self, trainer, step, model):
        self.trainer, self.step, self.model, self.exact = trainer, step, model, True

    def __call__(self, inputs, items, accumulation):
        """Return the value that would be backpropagated for one of so many micro batches."""
        self.got = None
        with contextlib.ExitStack() as stack:
            for each in self.untouched(accumulation):
                stack.enter_context(each)
            self.step(self.trainer, self.model, places.copied(dict(inputs)) if hasattr(inputs, "keys") else inputs, *self.counted(items))
        return self.got

    def counted(self, items):
        return () if items is None and not takes_items(self.step) else (items,)

    def untouched(self, accumulation):
        """Return the contexts that restore what the run changes."""
        torch, trainer = sys.modules["torch"], self.trainer
        yield containers(vars(trainer))
        yield modulestate.untouched(self.model)
        yield evaluating(self.model)
        yield attribute(trainer.args, "gradient_accumulation_steps", accumulation)
        if hasattr(trainer, "current_gradient_accumulation_steps"):
            yield attribute(trainer, "current_gradient_accumulation_steps", accumulation)
        yield attribute(trainer.accelerator, "backward", lambda given, **options: self.take(given, accumulation, options))
        if exclusions.compiled(self.model):
            yield torch.compiler.set_stance("force_eager")

    def take(self, given, accumulation, options):
        """Runs in place of Accelerator.backward, which may divide the loss once more."""
        torch, accelerator = sys.modules["torch"], self.trainer.accelerator
        self.exact = self.exact and given.dtype in (torch.float32, torch.float64)
        self.got = float(given.float().mean())
        if str(getattr(accelerator, "distributed_type", "")).endswith("DEEPSPEED"):
            divides = options.get("scale_wrt_gas", True)
        else:
            divides = hands_on(type(self.trainer))
        if divides:
            self.got /= accumulation


def takes_items(step):
    import inspect

    return "num_items_in_batch" in inspect.signature(step).parameters


def hands_on(kind):
    """Return whether this version of Trainer leaves the division to Accelerate."""
    import inspect

    make = getattr(kind, "create_accelerator_and_postprocess", None)
    return make is not None and '["num_steps"] = self.args.gradient_accumulation_steps' in inspect.getsource(make)


@contextlib.contextmanager
def attribute(owner, name, value):
    """Sets an attribute for a while."""
    own = vars(owner)
    had, old = name in own, own.get(name)
    own[name] = value
    try:
        yield
    finally:
        if had:
            own[name] = old
        else:
            own.pop(name, None)


@contextlib.contextmanager
def evaluating(model):
    """Makes the model compute without dropout, though training_step puts it in training mode."""
    def before(module, args):
        module.eval()

    handle = model.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def containers(value):
    """Restores the contents of small containers in a dictionary: Trainers count and collect."""
    found = {}
    collect(value, found)
    try:
        yield
    finally:
        for container, copy in found.values():
            callstate.restore(container, copy)


def collect(value, found):
    if not isinstance(value, (dict, list, set)) or id(value) in found or len(value) > 1000 or len(found) > 1000:
        return
    found[id(value)] = value, value.copy()
    for each in value.values() if isinstance(value, dict) else value:
        collect(each, found)
