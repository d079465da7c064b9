"""Reads commands as the frameworks themselves do.

stdin: a JSON list of {"kind": "hf" | "deepspeed", "argv": [...], "ranks": n}.
stdout, last line: a JSON list of {knob: value} or {"error": text}, in that order.
"""

import argparse
import contextlib
import json
import sys
from dataclasses import dataclass, field


def hf(job):
    from transformers import HfArgumentParser, TrainingArguments

    @dataclass
    class Script:
        model_name_or_path: str = field(default="")
        attn_implementation: str = field(default="sdpa")
        block_size: int = field(default=1024)

    parser = HfArgumentParser((Script, TrainingArguments))
    words = job["argv"][1:]
    if len(words) == 1:
        with open(words[0]) as f:
            config = json.load(f)
        pinned = config.get("dataloader_pin_memory", True)
        script, args = parser.parse_dict({**config, "use_cpu": True})
    else:
        pinned = argparse.ArgumentParser.parse_args(parser, words).dataloader_pin_memory
        script, args = parser.parse_args_into_dataclasses(args=[*words, "--use_cpu"])
    plan = {
        "micro_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "eval_batch_size": args.per_device_eval_batch_size,
        "activation_checkpointing": "full" if args.gradient_checkpointing else "none",
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "dataloader_workers": args.dataloader_num_workers,
        "pin_memory": pinned,  # --use_cpu turns it off
        "attention": script.attn_implementation,
        "sequence_length": script.block_size,
    }
    if args.deepspeed:
        ds = args.hf_deepspeed_config
        ds.trainer_config_process(args)
        plan.update(zero(ds.config["zero_optimization"]))
        for key, knob in (("train_micro_batch_size_per_gpu", "micro_batch_size"), ("gradient_accumulation_steps", "gradient_accumulation_steps")):
            if key in ds.config and ds.config[key] != plan[knob]:
                raise ValueError(f"{key} is {ds.config[key]} in the configuration")
    return plan


def zero(block):
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    config = DeepSpeedZeroConfig(**block)

    def device(offload):
        return str(getattr(offload.device, "value", offload.device)) if offload else "none"

    stage = int(config.stage)
    return {
        "sharding": f"zero{stage}" if stage else "none",
        "offload_optimizer": device(config.offload_optimizer),
        "offload_param": device(config.offload_param),
    }


def deepspeed(job):
    from deepspeed.runtime import config

    config.dist.get_rank = lambda *_: 0
    config.dist.get_world_size = lambda *_: job["ranks"]
    words = job["argv"]
    path = next(w.partition("=")[2] or words[i + 1] for i, w in enumerate(words) if w.startswith("--deepspeed_config"))
    read = config.DeepSpeedConfig(path)
    with open(path) as f:
        block = config.hjson.load(f).get("zero_optimization", {})
    plan = zero(block)
    plan["micro_batch_size"] = read.train_micro_batch_size_per_gpu
    plan["gradient_accumulation_steps"] = read.gradient_accumulation_steps
    bf16, fp16 = read.bfloat16_config.enabled, read.float16_config.enabled
    plan["precision"] = "bf16" if bf16 else "fp16" if fp16 else "fp32"
    if read.zero_config.offload_optimizer:
        plan["pin_memory"] = read.zero_config.offload_optimizer.pin_memory
    return plan


def main():
    jobs, answers = json.load(sys.stdin), []
    with contextlib.redirect_stdout(sys.stderr):
        for job in jobs:
            try:
                answers.append({"hf": hf, "deepspeed": deepspeed}[job["kind"]](job))
            except BaseException as error:  # argparse exits
                answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
