"""What LightningCLI reads, with a model and a data module of the usual shape."""

import os

import zero
from lightning.fabric.connector import _convert_precision_to_unified_args
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.strategies import DeepSpeedStrategy

PACKAGES = ["lightning", "deepspeed", "jsonargparse"]

PRECISIONS = {"32-true": "fp32", "16-mixed": "fp16", "16-true": "fp16", "bf16-mixed": "bf16", "bf16-true": "bf16"}


class Model(LightningModule):
    pass


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 1, num_workers: int = 0):
        super().__init__()


class Read(LightningCLI):
    """Parses, and starts nothing."""

    def instantiate_classes(self):
        pass

    def _run_subcommand(self, subcommand):
        pass

    def _add_instantiators(self):
        pass


def parse(case):
    config = Read(Model, Data, args=case.argv[1:]).config["fit"]
    return {**trainer_plan(config.trainer, case.ranks), "micro_batch_size": config.data.batch_size, "dataloader_workers": config.data.num_workers}


def trainer_plan(trainer, ranks):
    plan = {
        "gradient_accumulation_steps": trainer.accumulate_grad_batches,
        "precision": PRECISIONS[_convert_precision_to_unified_args(trainer.precision or "32-true")],
        "sharding": "none", "offload_optimizer": "none", "offload_param": "none",
    }
    if "PL_DEEPSPEED_CONFIG_PATH" in os.environ:
        if trainer.strategy != "deepspeed":
            raise ValueError(f"the strategy is {trainer.strategy}")
        # What the strategy loads; it refuses an accumulation of the configuration's own.
        config = DeepSpeedStrategy().config
        if "gradient_accumulation_steps" in config:
            raise ValueError("gradient_accumulation_steps in the configuration")
        plan.update(zero.read({**config, "train_micro_batch_size_per_gpu": 1}, ranks, batch=False))
    return plan
