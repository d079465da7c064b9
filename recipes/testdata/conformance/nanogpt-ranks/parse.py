"""What the train.py of March 2023 has in its globals once configurator.py has run."""

import os
import subprocess
import sys

import sources

COMMIT = "a82b33b525ca9855d705656387698e13eb8e8d4b"
PACKAGES = [("nanoGPT", COMMIT[:8]), "torch"]
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def text(path):
    """A file as it was at the commit: the checkout may be at a later one."""
    folder = sources.checkout("karpathy/nanoGPT", COMMIT)
    return subprocess.run(["git", "-C", str(folder), "show", f"{COMMIT}:{path}"], check=True, capture_output=True, text=True).stdout


# What the script imports before its settings is the same today.
sys.path.insert(0, str(sources.checkout("karpathy/nanoGPT", COMMIT)))

TRAIN, CONFIGURATOR = text("train.py"), text("configurator.py")


def parse(case):
    if not os.path.lexists("configurator.py"):
        with open("configurator.py", "w") as file:
            file.write(CONFIGURATOR)
    settings, rest = TRAIN.split("# various inits", 1)
    assert "exec(open('configurator.py').read())" in settings
    assert "gradient_accumulation_steps //=" not in rest and "range(gradient_accumulation_steps)" in rest
    scope = {"__name__": "train"}
    exec(compile(settings, "train.py", "exec"), scope)
    return {
        "micro_batch_size": scope["batch_size"],
        "gradient_accumulation_steps": scope["gradient_accumulation_steps"],
        "sequence_length": scope["block_size"],
        "precision": PRECISIONS[scope["dtype"]],
    }
