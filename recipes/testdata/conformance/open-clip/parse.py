"""What open_clip_train.main gets from its parser, which also fills in defaults by model."""

from open_clip_train.params import parse_args
from timm.optim import list_optimizers

PACKAGES = ["open_clip_torch", "timm", "torch"]

PRECISIONS = {
    "fp32": "fp32", "amp": "fp16", "fp16": "fp16", "pure_fp16": "fp16",
    "amp_bf16": "bf16", "amp_bfloat16": "bf16", "bf16": "bf16", "pure_bf16": "bf16",
}


def optimizer(name):
    if name.startswith("timm/"):
        assert name[5:] in list_optimizers(), name
    return {"timm/bnbadamw8bit": "adamw-8bit"}.get(name, name)


def parse(case):
    args = parse_args(case.argv[1:])
    return {
        "micro_batch_size": args.batch_size,
        "gradient_accumulation_steps": args.accum_freq,
        "activation_checkpointing": "full" if args.grad_checkpointing else "none",
        "precision": PRECISIONS[args.precision],
        "optimizer": optimizer(args.opt),
        "dataloader_workers": args.workers,
    }
