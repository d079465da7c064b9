"""What the training scripts of diffusers make of their arguments."""

import importlib.util
import os
import pathlib

import sources
from accelerate import Accelerator

COMMIT = "58eb52c0803ea9af3abec60841c2a093bdf1f951"
PACKAGES = ["diffusers", ("examples", COMMIT[:8]), "accelerate"]

SCRIPTS = {
    "train_text_to_image.py": ("examples/text_to_image", "77a4c623"),
    "train_controlnet.py": ("examples/controlnet", "ff6bdc1e"),
    "train_dreambooth_lora_sdxl.py": ("examples/dreambooth", "43127665"),
    "train_dreambooth_lora_flux.py": ("examples/dreambooth", "f70f5370"),
}


def script(name):
    folder, blob = SCRIPTS[name]
    path = sources.file("huggingface/diffusers", COMMIT, f"{folder}/{name}", blob)
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = {name: script(name) for name in SCRIPTS}


def mixed_precision(args):
    """What Accelerate makes of the argument, or of the environment where there is none. It would wait for the other ranks."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    accelerator = Accelerator(mixed_precision=args.mixed_precision, cpu=True)
    return {"no": "fp32"}.get(accelerator.mixed_precision, accelerator.mixed_precision)


def parse(case):
    args = MODULES[pathlib.Path(case.argv[0]).name].parse_args()
    return {
        "micro_batch_size": args.train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "activation_checkpointing": "full" if args.gradient_checkpointing else "none",
        "precision": mixed_precision(args),
        "optimizer": "adamw-8bit" if args.use_8bit_adam and getattr(args, "optimizer", "adamw").lower() == "adamw" else "adamw",
        "dataloader_workers": args.dataloader_num_workers,
    }
