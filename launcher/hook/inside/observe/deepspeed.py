# The settings of DeepSpeed, read once it has made its engine.
import functools

from ..base import process, wall, words


def arrived(name, module):
    if module is None:
        return
    plain = module.initialize

    def initialize(own, *args, **kwargs):
        made = own(*args, **kwargs)
        tell(made[0])
        return made

    module.initialize = functools.wraps(plain)(wall.wrapped(plain, initialize))


@process.guarded
def tell(engine):
    """Reports what an engine really uses, be it from a file, a dictionary or a default."""
    def settle(knob, value):
        process.settle(knob, value, "deepspeed.initialize", process.FRAMEWORK)

    settle("micro_batch_size", engine.train_micro_batch_size_per_gpu())
    settle("gradient_accumulation_steps", engine.gradient_accumulation_steps())
    tell_config(engine.config if isinstance(getattr(engine, "config", None), dict) else {}, "deepspeed.initialize")
    settle("sharding", words.STAGES.get(int(engine.zero_optimization_stage())))
    process.save()


def tell_config(config, by):
    """Reports the settings of a configuration other than the batch."""
    def settle(knob, value):
        process.settle(knob, value, by, process.FRAMEWORK)

    zero = config.get("zero_optimization") or {}
    if isinstance(zero.get("stage"), int):
        settle("sharding", words.STAGES.get(zero["stage"]))
    for knob, key in (("offload_optimizer", "offload_optimizer"), ("offload_param", "offload_param")):
        device = (zero.get(key) or {}).get("device")
        if device in ("none", "cpu", "nvme"):
            settle(knob, device)
    for key, word in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        if (config.get(key) or {}).get("enabled") is True:
            settle("precision", word)
