# The settings of transformers and Accelerate, and the orders that change them.
import functools
import weakref

from ..base import process, session, words
from . import calls, deepspeed, trainerloss

trainers: list = []  # weakly, the one that trains last


def arrived(name, module):
    if module is None:
        return
    if name == "transformers.training_args":
        arguments(module.TrainingArguments)
    elif name == "transformers.trainer":
        trainer(module.Trainer)
    elif name == "accelerate.accelerator":
        calls.constructor(module.Accelerator, "accelerate.Accelerator", accelerator)


def arguments(kind):
    """A dataclass and its subclasses set their fields, and then call this one function."""
    plain = kind.__post_init__

    @functools.wraps(plain)
    def __post_init__(self, *args, **kwargs):
        changed(self)
        plain(self, *args, **kwargs)
        settled(self)

    kind.__post_init__ = __post_init__


@process.guarded
def changed(self):
    call = "transformers.TrainingArguments"

    def get(keyword):
        if not hasattr(self, keyword):
            raise LookupError(keyword)
        return getattr(self, keyword)

    calls.change(call, type(self).__name__, get, lambda k, v: setattr(self, k, v))


@process.guarded
def settled(self):
    tell(self, "transformers." + type(self).__name__ if type(self).__module__.startswith("transformers") else type(self).__name__, process.ARGUMENT)
    process.save()


PLACES = {
    "micro_batch_size": "per_device_train_batch_size", "gradient_accumulation_steps": "gradient_accumulation_steps",
    "eval_batch_size": "per_device_eval_batch_size", "activation_checkpointing": "gradient_checkpointing",
    "optimizer": "optim", "dataloader_workers": "dataloader_num_workers", "pin_memory": "dataloader_pin_memory",
}


def tell(a, by, authority):
    """Reports what training arguments hold."""
    for knob, keyword in PLACES.items():
        value = getattr(a, keyword, None)
        process.settle(knob, words.word(knob, keyword, value), by, authority)
    kind = "bf16" if getattr(a, "bf16", False) else "fp16" if getattr(a, "fp16", False) else None
    if kind is not None:
        process.settle("precision", kind, by, authority)
    if getattr(a, "deepspeed", None):
        config = getattr(getattr(a, "hf_deepspeed_config", None), "config", None)
        if isinstance(config, dict):
            deepspeed.tell_config(config, by)
    elif getattr(a, "fsdp", None):
        process.settle("sharding", "fsdp", by, authority)


def trainer(kind):
    calls.method(kind, "train", "transformers.Trainer.train")
    init, train = kind.__init__, kind.train

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        remember(self)

    @functools.wraps(train)
    def again(self, *args, **kwargs):
        withhold(self)
        pass_gradients(self)
        remember(self)
        follow(kind)
        return train(self, *args, **kwargs)

    kind.__init__, kind.train = __init__, again


@process.guarded
def follow(kind):
    """Notes what the latest training step was called with: a process that runs out of memory in it is asked."""
    plain = kind.training_step
    if hasattr(plain, "gpurun") or not process.here():
        return
    noted, forgotten = process.guarded(trainerloss.note), trainerloss.forget

    @functools.wraps(plain)
    def training_step(self, model, inputs, *args, **kwargs):
        noted(self, plain, model, inputs, args[0] if args else kwargs.get("num_items_in_batch"))
        found = plain(self, model, inputs, *args, **kwargs)
        forgotten()
        return found

    training_step.__dict__["gpurun"] = True
    kind.training_step = training_step


@process.guarded
def withhold(self):
    """Takes back an order for checkpointing that the model has no method for: Trainer would
    call it, and fail."""
    if any(hasattr(self.model, name + "_checkpointing_enable") for name in ("gradient", "activation")):
        return
    for i, o in calls.orders("transformers.TrainingArguments"):
        if o["keyword"] == "gradient_checkpointing" and o["to"] is True and calls.made.get(i):
            for name in ("gradient_checkpointing", "activation_checkpointing"):  # its name since transformers 5
                if getattr(self.args, name, None) is True:
                    setattr(self.args, name, False)
            (process.told.get("applied") or {}).pop(o.get("knob"), None)
            calls.failed(o, "%s has no gradient_checkpointing_enable" % type(self.model).__name__)
            process.say("gradient_checkpointing stays False: %s has no method for it" % type(self.model).__name__)


@process.guarded
def pass_gradients(self):
    """Checkpoints blocks in the way that needs no gradient of their input, where nothing
    before them trains, as under an adapter. The other way, the default before transformers 5,
    would end the first backward pass with an error."""
    args, keyword = self.args, "gradient_checkpointing_kwargs"
    if not process.orders().get("hooks") or not getattr(args, "gradient_checkpointing", False) or getattr(args, keyword, 0) is not None:
        return
    first = self.model.get_input_embeddings() if hasattr(self.model, "get_input_embeddings") else None
    if first is None or first._forward_hooks or any(p.requires_grad for p in first.parameters()) or not reentrant(self.model):
        return
    setattr(args, keyword, {"use_reentrant": False})
    process.say("%s: %s None→{'use_reentrant': False}: the embeddings of %s are frozen" % (type(args).__name__, keyword, type(self.model).__name__))


def reentrant(model):
    """Return whether a model of transformers checkpoints reentrantly by default."""
    import inspect

    enable = getattr(model, "gradient_checkpointing_enable", None)
    text = inspect.getsource(enable) if enable is not None else ""
    return '"use_reentrant": True' in text


@process.guarded
def remember(self):
    trainers[:] = [weakref.ref(self)]
    tell(self.args, type(self).__name__, process.FRAMEWORK)
    process.save()


def first():
    """Called when the root is called for the first time."""
    self = trainers and trainers[-1]()
    if not self:
        return
    tell(self.args, type(self).__name__, process.FRAMEWORK)
    session.current.replicas = max(1, getattr(self.args, "n_gpu", 1)) if process.world() <= 1 else 1
    session.current.sources.append(progress)
    process.told["total_steps"] = int(getattr(self.state, "max_steps", 0) or 0)


def progress():
    """Return the latest step, the last step of the training, and the loss."""
    self = trainers[-1]()
    loss = next((row["loss"] for row in reversed(self.state.log_history[-4:]) if "loss" in row), None)
    return self.state.global_step, self.state.max_steps, loss


@process.guarded
def accelerator(self):
    kind = words.word("precision", "", self.mixed_precision)
    if self.mixed_precision != "no":
        process.settle("precision", kind, "accelerate.Accelerator", process.ARGUMENT)
    if self.gradient_accumulation_steps > 1:
        process.settle("gradient_accumulation_steps", self.gradient_accumulation_steps, "accelerate.Accelerator", process.ARGUMENT)
    process.save()
