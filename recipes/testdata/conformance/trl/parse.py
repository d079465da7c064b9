"""What the supervised script of TRL reads."""

import os

import zero
from trl.scripts.sft import make_parser

PACKAGES = ["trl", "transformers", "accelerate", "deepspeed"]

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit",
    "paged_adamw_8bit": "paged-adamw-8bit",
}


def truth(words, name, otherwise):
    """A flag as given: on the CPU the Trainer turns pinned memory off."""
    return False if f"--no_{name}" in words else otherwise


def parse(case):
    os.environ["WORLD_SIZE"] = "1"  # the Trainer would wait for the other ranks
    words = case.argv[1:]
    _, args, _, model, *_ = sorted_by_kind(make_parser().parse_args_and_config(args=[*words, "--use_cpu"], return_remaining_strings=True))
    optimizer = str(getattr(args.optim, "value", args.optim))
    plan = {
        "micro_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "eval_batch_size": args.per_device_eval_batch_size,
        "activation_checkpointing": "full" if args.gradient_checkpointing else "none",
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "optimizer": OPTIMIZERS.get(optimizer, optimizer),
        "sequence_length": args.max_length,
        "offload_activations": "cpu" if args.activation_offloading else "none",
        "dataloader_workers": args.dataloader_num_workers,
        "pin_memory": truth(words, "dataloader_pin_memory", True),
        "attention": model.attn_implementation or "sdpa",
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
    if args.deepspeed:
        config = args.hf_deepspeed_config
        config.trainer_config_process(args)
        for key, knob in (("train_micro_batch_size_per_gpu", "micro_batch_size"), ("gradient_accumulation_steps", "gradient_accumulation_steps")):
            if config.config.get(key, plan[knob]) != plan[knob]:
                raise ValueError(f"{key} is {config.config[key]} in the configuration")
        plan.update(zero.read(config.config, case.ranks, batch=False))
    return plan


def sorted_by_kind(parts):
    """Script, training, data set and model arguments, whatever their order."""
    kinds = {type(part).__name__: part for part in parts}
    return kinds["ScriptArguments"], kinds["SFTConfig"], kinds.get("DatasetMixtureConfig"), kinds["ModelConfig"]
