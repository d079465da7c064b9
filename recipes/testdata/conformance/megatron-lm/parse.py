"""What pretrain_gpt.py of Megatron-LM makes of its arguments, checked and completed."""

import sys
import typing

import sources
import typing_extensions

COMMIT = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"
ARGUMENTS = sources.file("NVIDIA/Megatron-LM", COMMIT, "megatron/training/arguments.py", "50327de4")
sys.path.insert(0, str(ARGUMENTS.parents[2]))
if not hasattr(typing, "override"):  # before Python 3.12
    typing.override = typing_extensions.override

from megatron.core import package_info  # noqa: E402
from megatron.training import arguments  # noqa: E402

arguments.get_device_arch_version = lambda: 9  # there is no GPU to ask: a Hopper

PACKAGES = [("Megatron-LM", f"{package_info.__version__} ({COMMIT[:8]})"), "torch"]


def parse(case):
    args = arguments.parse_args()
    args = arguments.validate_args(args) or args
    if args.yaml_cfg:
        raise ValueError("a YAML configuration")
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"
    accumulation, rest = divmod(args.global_batch_size, args.micro_batch_size * args.data_parallel_size)
    assert rest == 0, "the global batch is no multiple"
    return {
        "micro_batch_size": args.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "eval_batch_size": args.eval_micro_batch_size,
        "sequence_length": args.seq_length,
        "activation_checkpointing": recompute(args),
        "precision": precision,
        "attention": {"unfused": "eager", "local": "eager"}.get(args.attention_backend.name, "flash"),
        "optimizer": {"adam": "adamw"}.get(args.optimizer, args.optimizer),
        "sharding": "zero1" if args.use_distributed_optimizer else "none",
        "offload_optimizer": "cpu" if args.optimizer_cpu_offload and args.optimizer_offload_fraction == 1 else "none",
        "dataloader_workers": args.num_workers,
    }


def recompute(args):
    """Full checkpointing is that of every layer."""
    if args.recompute_granularity == "full":
        assert args.recompute_method == "uniform" and args.recompute_num_layers == 1, vars(args)
    return args.recompute_granularity or "none"
