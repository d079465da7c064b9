"""Lists of plans, the most wanted first: a run that ends early has measured those."""

import models


def plan(model, **settings):
    made = {
        "model": model, "sequence": models.sequence(model), "micro": 1, "accum": 1, "params": "fp32", "amp": "bf16",
        "ckpt": "none", "by": "none", "optim": "adamw", "attn": "sdpa", "engine": "torch", "sharding": "none",
        "zero": 0, "buckets": "default", "offload_optimizer": "none", "offload_param": "none", "ranks": 1,
    }
    made.update(settings)
    if made["ckpt"] != "none" and made["by"] == "none":
        made["by"] = "switch"
    return made


def zero(model, stage, **settings):
    """A plan of DeepSpeed's: the weights in bf16, a master copy in fp32."""
    if settings.get("offload_optimizer", "none") != "none":
        settings.setdefault("optim", "cpu_adam")
    sharding = "zero%d" % stage if stage else "ddp"
    return plan(model, engine="deepspeed", zero=stage, sharding=sharding, params="bf16", amp="off", **settings)


def cpu(model, stage, **settings):
    return zero(model, stage, offload_optimizer="cpu", **settings)


def both(model, **settings):
    return cpu(model, 3, offload_param="cpu", **settings)


SMALL, LARGE, TIED = "gpt2-medium", "llama-1.1b", "qwen2-0.5b"


def stages(model, micros, stages=(0, 1, 2, 3), **settings):
    return [zero(model, s, micro=m, **settings) for s in stages for m in micros]


def on_gpu():
    """ZeRO's stages on one GPU, nothing offloaded."""
    wanted = stages(SMALL, (1, 4)) + stages(LARGE, (1, 4)) + stages(SMALL, (1, 4), (1, 2, 3), buckets="hidden")
    wanted += stages(SMALL, (4,), ckpt="full") + stages(SMALL, (2,), accum=2) + stages(LARGE, (4,), ckpt="full")
    wanted += stages(LARGE, (4,), (1, 2, 3), buckets="hidden") + stages(SMALL, (1,), (1, 2, 3), optim="adamw_foreach")
    return wanted + [zero(SMALL, 2, micro=1, overlap=True), zero(SMALL, 3, micro=1, overlap=False)]


def more_on_gpu():
    return stages(LARGE, (1,), accum=2) + stages(SMALL, (2, 8)) + stages(TIED, (1, 4), (1, 2, 3))


def to_host():
    """The optimizer, and the parameters, in host memory; one plan on NVMe among them."""
    wanted = [cpu(SMALL, 2, micro=1), both(SMALL, micro=1), cpu(SMALL, 3, micro=1), cpu(SMALL, 1, micro=1)]
    wanted += [zero(SMALL, 3, micro=1, offload_optimizer="nvme", offload_param="nvme"), cpu(SMALL, 2, micro=1, accum=2), both(SMALL, micro=4)]
    wanted += [cpu(SMALL, 3, micro=1, accum=2), cpu(SMALL, 2, micro=4), cpu(SMALL, 1, micro=1, accum=2)]
    return wanted + [both(LARGE, micro=1), cpu(LARGE, 2, micro=1), cpu(LARGE, 3, micro=1)]


def more_to_host():
    wanted = [both(SMALL, micro=4, ckpt="full"), cpu(SMALL, 2, micro=1, pin=False), both(SMALL, micro=1, buckets="hidden")]
    wanted += [zero(SMALL, 3, micro=1, offload_param="cpu"), both(SMALL, micro=1, accum=2), cpu(SMALL, 1, micro=4), cpu(SMALL, 3, micro=4)]
    return wanted + [cpu(TIED, 2, micro=1), both(TIED, micro=1), cpu(LARGE, 2, micro=4), both(LARGE, micro=4)]


def to_nvme():
    nvme = {"offload_optimizer": "nvme", "offload_param": "nvme"}
    wanted = [zero(SMALL, 3, micro=1, **nvme), zero(SMALL, 3, micro=1, offload_optimizer="nvme"), zero(SMALL, 3, micro=4, **nvme)]
    wanted += [zero(SMALL, 3, micro=1, offload_optimizer="nvme", offload_param="cpu")]
    wanted += [zero(SMALL, 3, micro=1, sub_group=100000000, **nvme), zero(SMALL, 3, micro=1, accum=2, **nvme)]
    return wanted + [cpu(SMALL, 3, micro=1, offload_param="nvme")]


def hooks():
    """Checkpointing by the probe beside the model's own switch."""
    wanted = []
    for model in (SMALL, LARGE):
        for micro in (4, 8):
            wanted += [plan(model, micro=micro), plan(model, micro=micro, ckpt="full"), plan(model, micro=micro, ckpt="full", by="hook")]
            wanted += [plan(model, micro=micro, ckpt="selective", by="hook")]
        wanted += [plan(model, micro=4, params="bf16", amp="off"), plan(model, micro=4, params="bf16", amp="off", ckpt="full", by="hook")]
        wanted += [plan(model, micro=4, params="bf16", amp="off", ckpt="full")]
    return wanted


def lengths():
    wanted = []
    for model in (LARGE, TIED):
        for length in (128, 256, 512, 1024, 2048):
            at = {"micro": 4, "sequence": length}
            wanted += [plan(model, **at), plan(model, ckpt="full", **at), plan(model, params="bf16", amp="off", **at), plan(model, attn="eager", **at)]
    for model in (SMALL, TIED):
        for ckpt in ("none", "full"):
            wanted.append(plan(model, micro=4, sequence=1024, lengths=[600, 350, 900, 1024, 150, 800, 1000], ckpt=ckpt))
    return wanted


def two():
    """Two GPUs: what is divided, and what the buckets and NCCL take."""
    wanted = stages(SMALL, (1, 4)) + stages(SMALL, (1,), (1, 2, 3), buckets="hidden") + stages(LARGE, (4,))
    wanted += [plan(m, micro=4, sharding=s) for m in (SMALL, LARGE) for s in ("ddp", "fsdp")] + stages(SMALL, (1,), accum=2)
    wanted += [cpu(SMALL, 2, micro=1), both(SMALL, micro=1), cpu(SMALL, 3, micro=1), cpu(SMALL, 1, micro=1)] + stages(LARGE, (4,), (2, 3), ckpt="full")
    wanted += stages(LARGE, (1,)) + [zero(SMALL, 2, micro=1, overlap=True)] + stages(LARGE, (4,), (1, 2, 3), buckets="hidden")
    wanted += [cpu(LARGE, 2, micro=1), both(LARGE, micro=1)]
    wanted += [zero(SMALL, 3, micro=1, offload_optimizer="nvme", offload_param="nvme"), cpu(SMALL, 2, micro=1, accum=2)]
    wanted += [plan(m, micro=4, sharding=s, ckpt="full") for m in (SMALL, LARGE) for s in ("ddp", "fsdp")]
    return [dict(p, ranks=2) for p in wanted]


def tiny():
    """Every way once, in a model that a CPU trains: that the tool works."""
    wanted = stages("tiny", (2,), accum=2) + stages("tiny", (2,), (1, 2, 3), buckets="hidden", ckpt="full")
    wanted += [cpu("tiny", s, micro=2) for s in (1, 2, 3)] + [both("tiny", micro=2)]
    wanted += [zero("tiny", 3, micro=2, offload_optimizer="nvme", offload_param="nvme")]
    wanted += [plan("tiny", micro=2, ckpt=c, by=b) for c, b in (("none", "none"), ("full", "switch"), ("full", "hook"), ("selective", "hook"))]
    return wanted + [plan("tiny", micro=2, lengths=[16, 32, 8]), plan("tiny", micro=2, attn="eager", sequence=16)]


LISTS = {
    "gpu": on_gpu, "more-gpu": more_on_gpu, "host": to_host, "more-host": more_to_host, "nvme": to_nvme,
    "hooks": hooks, "lengths": lengths, "two": two, "tiny": tiny,
}
LISTS["tiny-plain"] = lambda: [p for p in tiny() if p["engine"] == "torch"]
LISTS["tiny-two"] = lambda: [dict(p, ranks=2) for p in tiny() if p["by"] != "hook" and p["offload_param"] != "nvme"] + [plan("tiny", micro=2, sharding="ddp", ranks=2, accum=2)]
