"""What train.py has in its globals once configurator.py has run."""

import os

import sources

COMMIT = "3adf61e154c3fe3fca428ad6bc3818b27a3b8291"
PACKAGES = [("nanoGPT", COMMIT[:8]), "torch"]

TRAIN = sources.file("karpathy/nanoGPT", COMMIT, "train.py", "de578505")
CONFIGURATOR = sources.file("karpathy/nanoGPT", COMMIT, "configurator.py", "a8bba959")
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}

import sys  # noqa: E402

sys.path.insert(0, str(TRAIN.parent))


def parse(case):
    if not os.path.lexists("configurator.py"):
        os.symlink(CONFIGURATOR, "configurator.py")
    settings, rest = TRAIN.read_text().split("# various inits", 1)
    assert rest and "exec(open('configurator.py').read())" in settings
    scope = {"__name__": "train"}
    exec(compile(settings, "train.py", "exec"), scope)
    if scope["gradient_accumulation_steps"] % case.ranks:
        raise ValueError("train.py asserts that the ranks divide gradient_accumulation_steps")
    return {
        "micro_batch_size": scope["batch_size"],
        "gradient_accumulation_steps": scope["gradient_accumulation_steps"],
        "sequence_length": scope["block_size"],
        "precision": PRECISIONS[scope["dtype"]],
    }
