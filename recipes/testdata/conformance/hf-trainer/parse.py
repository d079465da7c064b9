"""What a script that reads TrainingArguments with HfArgumentParser gets."""

import json
import os
from dataclasses import dataclass, field

import zero
from transformers import HfArgumentParser, TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

PACKAGES = ["transformers", "accelerate", "deepspeed"]

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "paged_adamw_8bit": "paged-adamw-8bit",
}


@dataclass
class Script:
    model_name_or_path: str = field(default="")
    attn_implementation: str = field(default="sdpa")
    block_size: int = field(default=1024)


def arguments(words):
    """The script's own arguments, the Trainer's, and whether memory is pinned: on the CPU the Trainer turns that off."""
    parser = HfArgumentParser((Script, TrainingArguments))
    if len(words) == 1:
        with open(words[0]) as file:
            config = json.load(file)
        return *parser.parse_dict({**config, "use_cpu": True}), config.get("dataloader_pin_memory", True)
    pinned = super(HfArgumentParser, parser).parse_args(words).dataloader_pin_memory
    return *parser.parse_args_into_dataclasses(args=[*words, "--use_cpu"]), pinned


def parse(case):
    os.environ["WORLD_SIZE"] = "1"  # the Trainer would wait for the other ranks
    script, args, pinned = arguments(case.argv[1:])
    optimizer = str(getattr(args.optim, "value", args.optim))
    plan = {
        "micro_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "eval_batch_size": args.per_device_eval_batch_size,
        "activation_checkpointing": "full" if args.gradient_checkpointing else "none",
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "fused_loss": "on" if args.use_liger_kernel else "off",
        "optimizer": OPTIMIZERS.get(optimizer, optimizer),
        "dataloader_workers": args.dataloader_num_workers,
        "pin_memory": pinned,
        "attention": script.attn_implementation,
        "sequence_length": script.block_size,
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
    if args.deepspeed or args.deepspeed_plugin:
        plan.update(through_deepspeed(case, args, plan))
    return plan


def through_deepspeed(case, args, plan):
    """What DeepSpeed reads once the Trainer has filled in the configuration, which it compares with the arguments."""
    config = getattr(args, "hf_deepspeed_config", None)
    if config is None:  # accelerate launch brought it; the Trainer makes this of it
        config = HfTrainerDeepSpeedConfig(args.deepspeed_plugin.hf_ds_config.config)
    config.trainer_config_process(args)
    for key, knob in (("train_micro_batch_size_per_gpu", "micro_batch_size"), ("gradient_accumulation_steps", "gradient_accumulation_steps")):
        if key in config.config and config.config[key] != plan[knob]:
            raise ValueError(f"{key} is {config.config[key]} in the configuration")
    return zero.read(config.config, case.ranks, batch=False)
