# The settings of Lightning's Trainer, and the orders that change them.
import math
import weakref

from ..base import process, session, words
from . import calls

trainers: list = []  # weakly, the newest


def arrived(name, module):
    if module is None:
        return
    calls.constructor(module.Trainer, "lightning.Trainer", made)
    calls.method(module.Trainer, "fit", "lightning.Trainer.fit")


@process.guarded
def made(self):
    trainers[:] = [weakref.ref(self)]
    tell(self)
    process.save()


def tell(self):
    by = "lightning.Trainer"

    def settle(knob, value):
        process.settle(knob, value, by, process.FRAMEWORK)

    settle("gradient_accumulation_steps", self.accumulate_grad_batches)
    settle("precision", words.word("precision", "", self.precision))
    settle("sharding", sharding(type(self.strategy).__name__, self.strategy))


def sharding(name, strategy):
    if name.startswith("FSDP"):
        return "fsdp"
    if name.startswith("DeepSpeed"):
        stage = (getattr(strategy, "config", None) or {}).get("zero_optimization", {}).get("stage")
        return words.STAGES.get(stage)
    return "none" if name in ("SingleDeviceStrategy", "DDPStrategy") else None


def first():
    """Called when the root is called for the first time."""
    self = trainers and trainers[-1]()
    if not self or not self.training:
        return
    tell(self)
    module = self.lightning_module
    if module is not None and not module.automatic_optimization:
        process.settle("gradient_accumulation_steps", None, "", process.FRAMEWORK)
    session.current.sources.append(progress)
    process.told["total_steps"] = total(self)


def lingers():
    """Return whether the gradients of a step are held until after the next forward: the
    closure of Lightning's automatic optimization clears them between forward and backward
    (lightning/pytorch/loops/optimization/automatic.py, Closure.closure)."""
    self = trainers and trainers[-1]()
    module = self and self.training and self.lightning_module
    engine = type(self.strategy).__name__.startswith("DeepSpeed") if self else False  # clears them in its step
    return bool(module and module.automatic_optimization and not engine)


def total(self):
    """Return the number of optimizer steps, 0 where it is unknown."""
    most = [self.max_steps] if (self.max_steps or -1) > 0 else []
    batches = self.num_training_batches
    if self.max_epochs and self.max_epochs > 0 and batches not in (0, math.inf):
        most.append(self.max_epochs * math.ceil(batches / max(1, self.accumulate_grad_batches)))
    return int(min(most)) if most else 0


def progress():
    self = trainers[-1]()
    return self.global_step, process.told.get("total_steps"), None
