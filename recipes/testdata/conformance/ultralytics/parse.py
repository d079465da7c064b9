"""What the yolo command hands to its trainer."""

import os

os.environ["YOLO_OFFLINE"] = "true"

import ultralytics  # noqa: E402
from ultralytics import cfg  # noqa: E402

PACKAGES = ["ultralytics", "torch"]

PRECISIONS = {True: "fp16", "fp16": "fp16", "bf16": "bf16", False: "fp32", "fp32": "fp32"}


class Reached(Exception):
    """The command has come as far as the training."""


class Model:
    """Stands in for a model, whose weights would be downloaded."""

    def __init__(self, model, task=None):
        self.task = task or "detect"

    def train(self, **settings):
        raise Reached(settings)


def overrides(words):
    """The settings with which the command would train."""
    ultralytics.YOLO = Model
    try:
        cfg.entrypoint(" ".join(words))
    except Reached as end:
        return end.args[0]
    raise ValueError("the command does not train")


def parse(case):
    args = cfg.get_cfg(cfg.DEFAULT_CFG_DICT, overrides(case.argv))
    assert isinstance(args.batch, int) and args.batch % case.ranks == 0, args.batch
    return {
        "micro_batch_size": args.batch // case.ranks,
        "gradient_accumulation_steps": max(round(args.nbs / args.batch), 1),
        "precision": PRECISIONS[args.amp],
        "dataloader_workers": args.workers,
    }
