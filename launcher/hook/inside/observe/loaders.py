# The DataLoader that the training batches come from: its size, its workers, its memory.
import sys
import weakref

from ..base import process, wrapping
from ..model import values
from . import inputs, loss, microbatches

hook: dict = {"drawn": [], "open": None}


def arm(torch):
    """Observes the batches of loaders until the first steps are over."""
    loaders = sys.modules["torch.utils.data.dataloader"]
    hook["open"], hook["samples"] = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()

    def __iter__(own, self):
        it = own(self)
        opens(self, it)
        return it

    def __next__(own, self):
        batch = own(self)
        draw(self)
        microbatches.drawn(batch)
        return batch

    hook["undo"] = wrapping.replace(loaders.DataLoader, "__iter__", __iter__), wrapping.replace(loaders._BaseDataLoaderIter, "__next__", __next__)


def disarm():
    if "undo" in hook:
        for undo in hook.pop("undo"):
            undo()
        hook["drawn"], hook["open"] = [], None


@process.guarded
def opens(loader, iterator):
    """Notes a loader's settings: a loop may keep its iterator alone."""
    if hook["open"] is not None:
        hook["open"][iterator] = {
            "batch_size": size(loader), "num_workers": loader.num_workers, "pin_memory": bool(loader.pin_memory),
            "others": (type(loader), type(loader.sampler), type(loader.batch_sampler), loader.drop_last),
        }
        hook["samples"][iterator] = length(loader.dataset), weakly(loader.dataset)


@process.guarded
def draw(iterator):
    """Notes a batch that was drawn; of the latest, each kind of loader once."""
    if hook["open"] is None:
        return
    loader = hook["open"].get(iterator)
    if loader is None or not process.here():
        return
    if "root" in hook and hook["root"]["loader"] is None and not hook["root"].get("over"):
        hook["root"]["again"] = True  # the root was tried with something else before
    elif "root" in hook:
        hook["root"]["draws"] += 1
        if loader != hook["root"]["loader"]:
            doubt()
        return
    same = hook["drawn"] and hook["drawn"][-1] == loader
    hook["latest"], hook["early"] = hook["samples"].get(iterator, (None, None)), hook.get("early", 0) + 1 if same else 1
    hook["drawn"] = [kept for kept in hook["drawn"] if kept != loader][-7:] + [loader]


@process.guarded
def again(args, kwargs):
    """Called when the root is called once more: a script may have called it before with
    made-up input, to see that it works or to count what it computes."""
    root = hook.get("root")
    if root is None or root["loader"] is not None or root.get("over"):
        return
    if root.get("again"):
        process.settle("micro_batch_size", None, "", process.SHAPE)
        first(args, kwargs)
        process.save()
        return
    sizes = root.setdefault("sizes", [root.get("size")])
    size = inputs.batch(args, kwargs) or None
    if size == sizes[-1]:
        return
    process.settle("micro_batch_size", None if size in sizes else size, "the first batches", process.SHAPE)
    sizes.append(size)
    if size in sizes[:-1]:
        root["over"] = True  # it is called with batches of several sizes
    process.save()


def doubt():
    """Withdraws the report: the batches of one step come from loaders of two sizes."""
    if hook["root"].get("over"):
        return
    for knob in ("micro_batch_size", "dataloader_workers", "pin_memory"):
        process.settle(knob, None, "", process.LOADER)
    process.save()


def draws():
    """Return how many batches were drawn since the root was first called; None where no
    loader was used."""
    return hook["root"]["draws"] if "root" in hook and hook["root"]["loader"] is not None else None


def ahead():
    """Return whether more than one batch was drawn before the root was first called."""
    return hook.get("early", 1) > 1


def over():
    """Called when the first step is over: another loader may be an evaluation's."""
    if "root" in hook:
        hook["root"]["over"] = True


def first(args, kwargs):
    """Reports the loader whose batch the root is called with for the first time."""
    drawn = hook["drawn"]
    loader = drawn[-1] if drawn else None
    hook["root"] = {"loader": loader, "draws": 1}
    hook["drawn"] = []
    if loader is None:
        hook["root"]["size"] = inputs.batch(args, kwargs) or None
        process.settle("micro_batch_size", hook["root"]["size"], "the first batch", process.SHAPE)
        return
    by, told = "torch.utils.data.DataLoader", loader["batch_size"]
    given = [*args, *kwargs.values()]
    inner = [each for value in given for each in (value.values() if hasattr(value, "keys") else value if isinstance(value, (list, tuple)) else ())]
    fits = any(told in tensor.shape[:2] for tensor in values.tensors(given)) or told in [len(each) for each in given + inner if isinstance(each, (list, tuple))]
    if told is not None and fits:
        process.settle("micro_batch_size", told, by, process.LOADER)
    if fits or len(drawn) == 1:
        process.settle("dataloader_workers", loader["num_workers"], by, process.LOADER)
        process.settle("pin_memory", loader["pin_memory"], by, process.LOADER)
    if told is not None and fits and len(drawn) == 1:
        loss.say(samples=hook["latest"][0], batch=told)


def size(loader):
    """Return a loader's batch size, its batch sampler's where it has none itself."""
    for found in (loader.batch_size, getattr(loader.batch_sampler, "batch_size", None)):
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return None


def weakly(dataset):
    try:
        return weakref.ref(dataset)
    except TypeError:  # a list, whose length is known
        return None


def length(dataset):
    """Return the number of samples of a data set, None where only the job's own code knows it: that is asked once
    memory has run out, and gpurun has changed the batch or the process ends."""
    builtin = type(dataset) in (list, tuple, range)
    return asked(dataset) if builtin or process.orders().get("batch") else None


def question():
    """Return what asks the process that ends how many samples its data set has, None where that is known."""
    reference = (hook.get("latest") or (None, None))[1]
    dataset = reference() if reference is not None else None  # kept until it is asked
    if dataset is None or "batch" not in loss.known() or "samples" in loss.known():
        return None
    return lambda: loss.say(samples=asked(dataset))


def asked(dataset):
    try:
        return len(dataset)
    except Exception:  # the job's own code, or it has no length
        return None
