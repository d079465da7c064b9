"""What DeepSpeed itself reads from a configuration."""

from deepspeed.runtime import config as deepspeed


def device(offload):
    return str(getattr(offload.device, "value", offload.device)) if offload else "none"


def read(source, ranks, batch=True):
    """The plan in a configuration: a path, or a dict in which a launcher has replaced what it replaces.

    With batch, the three numbers too, which DeepSpeed derives and checks.
    """
    deepspeed.dist.get_rank = lambda *_: 0
    deepspeed.dist.get_world_size = lambda *_: ranks
    if isinstance(source, dict) and not batch:
        source = {k: v for k, v in source.items() if k not in ("train_batch_size", "gradient_accumulation_steps")}
        source["train_micro_batch_size_per_gpu"] = 1
    read = deepspeed.DeepSpeedConfig(source)
    zero = read.zero_config
    plan = {
        "sharding": f"zero{int(zero.stage)}" if zero.stage else "none",
        "offload_optimizer": device(zero.offload_optimizer),
        "offload_param": device(zero.offload_param),
    }
    if "nvme" in plan.values():
        check_swapping(read, zero)
    if batch:
        plan["micro_batch_size"] = read.train_micro_batch_size_per_gpu
        plan["gradient_accumulation_steps"] = read.gradient_accumulation_steps
        plan["precision"] = "bf16" if read.bfloat16_config.enabled else "fp16" if read.float16_config.enabled else "fp32"
        if zero.offload_optimizer:
            plan["pin_memory"] = zero.offload_optimizer.pin_memory
    return plan


def check_swapping(read, zero):
    """NVMe needs stage 3, a path, and an aio block that this version understands."""
    for offload in (zero.offload_optimizer, zero.offload_param):
        if device(offload) == "nvme" and not offload.nvme_path:
            raise ValueError("offload to NVMe without a path")
    if zero.stage != 3:
        raise ValueError(f"offload to NVMe at stage {zero.stage}")
    if not read.aio_config["block_size"] or not read.aio_config["queue_depth"]:
        raise ValueError(f"aio is {read.aio_config}")
