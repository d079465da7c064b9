"""What train.py of timm makes of its arguments and of the file that --config names."""

import importlib
import importlib.util

import sources
import timm
import timm.layers.config
from timm.optim import list_optimizers

COMMIT = "aa4b5850c1543fa488abf260f18390eda46cf85d"
PACKAGES = ["timm", ("train.py", COMMIT[:8]), "torch"]

OPTIMIZERS = {"nesterov": "sgd", "bnbadamw8bit": "adamw-8bit"}


def script():
    """train.py as a module."""
    path = sources.file("huggingface/pytorch-image-models", COMMIT, "train.py", "4b9f3082")
    spec = importlib.util.spec_from_file_location("timm_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRAIN = script()


def precision(args):
    """As main() does it."""
    if not args.amp:
        assert args.model_dtype in (None, "float32")
        return "fp32"
    assert args.model_dtype in (None, "float32"), "float32 model dtype must be used with AMP"
    return {"float16": "fp16", "bfloat16": "bf16"}[args.amp_dtype]


def parse(case):
    args, _ = TRAIN._parse_args()
    if args.opt not in list_optimizers():
        raise ValueError(f"timm has no optimizer {args.opt}")
    importlib.reload(timm.layers.config)  # it reads the environment when it is imported
    return {
        "micro_batch_size": args.batch_size,
        "gradient_accumulation_steps": args.grad_accum_steps,
        "eval_batch_size": args.validation_batch_size or args.batch_size,
        "activation_checkpointing": "full" if args.grad_checkpointing else "none",
        "precision": precision(args),
        "attention": "sdpa" if timm.layers.config.use_fused_attn() else "eager",
        "optimizer": OPTIMIZERS.get(args.opt, args.opt),
        "dataloader_workers": args.workers,
        "pin_memory": args.pin_mem,
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
