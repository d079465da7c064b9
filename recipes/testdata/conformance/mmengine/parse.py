"""What tools/train.py of MMPretrain makes of its arguments and of its configuration."""

import importlib.util

import mmengine
from importlib.metadata import distribution

PACKAGES = ["mmengine", "mmpretrain", "torch"]


def script():
    """tools/train.py, which the package brings along, as a module."""
    path = distribution("mmpretrain").locate_file("mmpretrain/.mim/tools/train.py")
    spec = importlib.util.spec_from_file_location("tools_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRAIN = script()


def parse(case):
    args = TRAIN.parse_args()
    config = TRAIN.merge_args(mmengine.Config.fromfile(args.config), args)
    wrapper, loader = config.optim_wrapper, config.train_dataloader
    amp = wrapper.get("type") == "AmpOptimWrapper"
    read = {
        "micro_batch_size": loader.batch_size,
        "gradient_accumulation_steps": wrapper.get("accumulative_counts", 1),
        "precision": {None: "fp16", "float16": "fp16", "bfloat16": "bf16"}[wrapper.get("dtype")] if amp else "fp32",
        "dataloader_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
    }
    if config.get("val_dataloader"):
        read["eval_batch_size"] = config.val_dataloader.batch_size
    return read
