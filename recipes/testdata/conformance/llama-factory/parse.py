"""What LLaMA-Factory's own arguments become: a YAML file with words that override it, or plain arguments."""

import os

os.environ["DISABLE_VERSION_CHECK"] = "1"  # of its dependencies, which here share one PyTorch

import zero
from llamafactory.hparams import get_train_args
from llamafactory.hparams.parser import read_args

PACKAGES = ["llamafactory", "transformers", "accelerate", "torch"]

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "paged_adamw_8bit": "paged-adamw-8bit",
}


def parse(case):
    os.environ["WORLD_SIZE"] = "1"  # the Trainer would wait for the other ranks
    words = read_args()
    words = {**words, "use_cpu": True} if isinstance(words, dict) else [*words, "--use_cpu"]
    model, data, args, _, _ = get_train_args(words)
    if args.auto_find_batch_size and case.name.endswith("after"):
        raise ValueError("auto_find_batch_size is on")
    # On the CPU the Trainer turns pinned memory off.
    pinned = words.get("dataloader_pin_memory", True) if isinstance(words, dict) else "--no_dataloader_pin_memory" not in words
    optimizer = str(getattr(args.optim, "value", args.optim))
    plan = {
        "micro_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "eval_batch_size": args.per_device_eval_batch_size,
        "sequence_length": data.cutoff_len,
        "activation_checkpointing": "none" if model.disable_gradient_checkpointing else "full",
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "attention": {"disabled": "eager", "sdpa": "sdpa", "auto": "sdpa"}.get(str(getattr(model.flash_attn, "value", model.flash_attn)), "flash"),
        "optimizer": OPTIMIZERS.get(optimizer, optimizer),
        "dataloader_workers": args.dataloader_num_workers,
        "pin_memory": pinned,
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
    if args.deepspeed:
        plan.update(through_deepspeed(case, args))
    return plan


def through_deepspeed(case, args):
    """What DeepSpeed reads once the Trainer has filled in the configuration."""
    config = args.hf_deepspeed_config or args.deepspeed_plugin.hf_ds_config
    config.trainer_config_process(args)
    return zero.read(config.config, case.ranks, batch=False)
