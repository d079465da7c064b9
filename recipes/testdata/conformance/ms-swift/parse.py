"""What ms-swift's arguments for supervised fine-tuning become."""

import json
import os
import pathlib

import zero
from swift.arguments import SftArguments
from swift.trainers import arguments
from swift.utils import parse_args

PACKAGES = ["ms-swift", "transformers", "torch"]

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "paged_adamw_8bit": "paged-adamw-8bit",
}

# A model that ms-swift can look up without the network.
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256}


def parse(case):
    model = pathlib.Path("model")
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL))
    # The nominal batch is divided by the world size; one process cannot make a group of several.
    arguments.get_dist_setting = lambda: (0, 0, case.ranks, case.ranks)
    os.environ.update(WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
    args, rest = parse_args(SftArguments, [*case.argv[1:], "--use_cpu", "true"])
    if rest:
        raise ValueError(f"remaining arguments: {rest}")
    trainer = args.training_args
    if args.add_version and case.name.endswith("after"):
        raise ValueError("the output folder gets a version of its own")
    optimizer = str(getattr(trainer.optim, "value", trainer.optim))
    plan = {
        "micro_batch_size": trainer.per_device_train_batch_size,
        "gradient_accumulation_steps": trainer.gradient_accumulation_steps,
        "eval_batch_size": trainer.per_device_eval_batch_size,
        "sequence_length": args.max_length,
        "activation_checkpointing": "full" if trainer.gradient_checkpointing else "none",
        "precision": "bf16" if trainer.bf16 else "fp16" if trainer.fp16 else "fp32",
        "optimizer": OPTIMIZERS.get(optimizer, optimizer),
        "dataloader_workers": trainer.dataloader_num_workers,
        "pin_memory": "--no_dataloader_pin_memory" not in case.argv,  # on the CPU the Trainer turns it off
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
    if args.attn_impl:
        plan["attention"] = args.attn_impl
    if args.deepspeed:
        plan.update(through_deepspeed(case, trainer))
    return plan


def through_deepspeed(case, args):
    """What DeepSpeed reads once the Trainer has filled in the configuration."""
    config = args.hf_deepspeed_config or args.deepspeed_plugin.hf_ds_config
    config.trainer_config_process(args)
    plan = zero.read(config.config, case.ranks, batch=False)
    for knob, key in (("micro_batch_size", "train_micro_batch_size_per_gpu"), ("gradient_accumulation_steps", "gradient_accumulation_steps")):
        if key in config.config:
            plan[knob] = config.config[key]
    return plan
