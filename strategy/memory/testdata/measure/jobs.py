"""One training job, by plain PyTorch or by DeepSpeed: forward, backward, step, close."""

import os
import shutil
import sys

import models
import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def device():
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def make(plan, probe, scratch):
    return DeepSpeed(plan, probe, scratch) if plan["engine"] == "deepspeed" else Plain(plan, probe)


class Plain:
    """A loop of one's own: one GPU, DistributedDataParallel, or fully_shard."""

    def __init__(self, plan, probe):
        self.plan = plan
        self.bare = models.build(plan["model"], device(), DTYPES[plan["params"]], plan["attn"])
        checkpoint(self.bare, plan, probe)
        self.model = self.bare
        if plan["sharding"] == "ddp":
            ids = [device().index] if device().type == "cuda" else None
            self.model = torch.nn.parallel.DistributedDataParallel(self.bare, device_ids=ids)
        if plan["sharding"] == "fsdp":
            shard(self.bare, plan)
        self.optimizer = adamw(plan["optim"])(self.bare.parameters())

    def forward(self, batch, last):
        self.last = last
        with torch.autocast(device().type, torch.bfloat16, enabled=self.plan["amp"] == "bf16"):
            if self.plan["sharding"] == "ddp" and not last:
                with self.model.no_sync():
                    return self.model(**batch).loss
            return self.model(**batch).loss

    def backward(self, loss):
        (loss / self.plan["accum"]).backward()

    def step(self):
        if self.last:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def close(self):
        self.model = self.bare = self.optimizer = None


class DeepSpeed:
    """deepspeed.initialize over a model whose weights are in bf16 from the start."""

    def __init__(self, plan, probe, scratch):
        import deepspeed

        self.bare = models.build(plan["model"], device(), torch.bfloat16, plan["attn"])
        checkpoint(self.bare, plan, probe)
        self.scratch = scratch
        shutil.rmtree(scratch, ignore_errors=True)
        settings = deepspeed_settings(plan, models.config(plan["model"]).hidden_size, scratch)
        self.engine, *_ = deepspeed.initialize(model=self.bare, optimizer=self.optimizer(plan), config=settings)

    @staticmethod
    def optimizer(plan):
        if plan["offload_optimizer"] == "none":
            return adamw(plan["optim"])
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return lambda params: DeepSpeedCPUAdam(params, lr=1e-4)

    def forward(self, batch, last):
        return self.engine(**batch).loss

    def backward(self, loss):
        self.engine.backward(loss)

    def step(self):
        self.engine.step()

    def close(self):
        self.engine.destroy()
        self.engine = self.bare = None
        shutil.rmtree(self.scratch, ignore_errors=True)


def adamw(kind):
    settings = {"adamw_foreach": {"foreach": True}, "adamw": {"fused": True}}[kind]
    return lambda params: torch.optim.AdamW(params, lr=1e-4, **settings)


def shard(model, plan):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in models.blocks(model):
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def checkpoint(model, plan, probe):
    """Turns checkpointing on: by the model's own switch, or by gpurun's probe, as in a script that has none."""
    if plan["ckpt"] == "none":
        return
    if plan["by"] != "hook":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return
    part = part_of(probe)
    # The probe takes a switch where there is one. Here its own way is to be seen: that is
    # how a model without a switch is recomputed.
    model.supports_gradient_checkpointing = False
    refused = part("checkpointing").refusal(model, plan["ckpt"])
    if refused:
        raise RuntimeError("the probe refuses checkpointing: " + refused)

    def gives_up(reason):
        raise RuntimeError("the probe gives checkpointing up: " + reason)

    part("checkpointing").turn(model, plan["ckpt"], gives_up)


def part_of(probe):
    """Gives the function that loads a part of the probe, as the probe's own does."""
    parts = {}

    def load(name):
        if name not in parts:
            path = os.path.join(probe, name + ".py")
            module = type(sys)("gpurun." + name)
            module.__file__, module.load = path, load
            with open(path) as f:
                exec(compile(f.read(), path, "exec"), module.__dict__)
            parts[name] = module
        return parts[name]

    return load


def deepspeed_settings(plan, hidden, scratch):
    """Gives DeepSpeed's configuration: its defaults, but for what the plan says."""
    zero = {"stage": plan["zero"]}
    if plan["buckets"] == "hidden":  # what Hugging Face's "auto" comes to
        zero["reduce_bucket_size"] = hidden * hidden
        if plan["zero"] == 3:
            zero["stage3_prefetch_bucket_size"] = hidden * hidden * 9 // 10
            zero["stage3_param_persistence_threshold"] = hidden * 10
    if plan.get("overlap") is not None:
        zero["overlap_comm"] = plan["overlap"]
    if plan.get("sub_group"):
        zero["sub_group_size"] = plan["sub_group"]
    for key in ("offload_optimizer", "offload_param"):
        if plan[key] != "none":
            zero[key] = {"device": plan[key], "pin_memory": plan.get("pin", True)}
            if plan[key] == "nvme":
                zero[key]["nvme_path"] = scratch
    return {
        "train_micro_batch_size_per_gpu": plan["micro"], "gradient_accumulation_steps": plan["accum"],
        "bf16": {"enabled": True}, "zero_optimization": zero, "zero_allow_untested_optimizer": True,
        "steps_per_print": 1 << 30, "gradient_clipping": 1.0,
    }
