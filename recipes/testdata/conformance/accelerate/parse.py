"""What an Accelerator finds, in a script with the arguments that most have."""

import argparse
import os

import zero
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin

PACKAGES = ["accelerate", "deepspeed"]


def truth(word):
    return word.lower() == "true"


def arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir")
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--eval_batch_size", type=int)
    parser.add_argument("--gradient_accumulation_steps", type=int)
    parser.add_argument("--gradient_checkpointing", type=truth, nargs="?", const=True, default=False)
    return parser.parse_args(words)


def parse(case):
    os.environ["WORLD_SIZE"] = "1"  # the Accelerator would wait for the other ranks
    args = arguments(case.argv[1:])
    plan = {
        "micro_batch_size": args.batch_size,
        "eval_batch_size": args.eval_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "activation_checkpointing": "full" if args.gradient_checkpointing else "none",
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        plan.update(through_deepspeed(args, case.ranks))
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "false"  # it would compile DeepSpeed's operators
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        os.environ["ACCELERATE_USE_FSDP"] = "false"
        plan["sharding"] = "fsdp"
    precision = Accelerator(cpu=True, gradient_accumulation_steps=args.gradient_accumulation_steps).mixed_precision
    return {**plan, "precision": {"no": "fp32"}.get(str(precision), str(precision))}


def through_deepspeed(args, ranks):
    """Accelerate's own reading of the configuration, and DeepSpeed's."""
    plugin = DeepSpeedPlugin()
    plugin.deepspeed_config_process(
        must_match=True,
        **{
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
            "gradient_clipping": 1.0,
            "train_micro_batch_size_per_gpu": args.batch_size,
            "train_batch_size": args.batch_size * args.gradient_accumulation_steps * ranks,
            "bf16.enabled": os.environ.get("ACCELERATE_MIXED_PRECISION") == "bf16",
            "fp16.enabled": os.environ.get("ACCELERATE_MIXED_PRECISION") == "fp16",
        },
    )
    plan = zero.read(plugin.deepspeed_config, ranks)
    del plan["precision"]
    return plan
