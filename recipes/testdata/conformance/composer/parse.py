"""What llm-foundry's train.py makes of its YAML file and the words behind it."""

import importlib

from composer.core import Precision
from llmfoundry.utils.config_utils import TRAIN_CONFIG_KEYS, TrainConfig, make_dataclass_and_log_config

command = importlib.import_module("llmfoundry.command_utils.train")  # the package has a function of that name

PACKAGES = ["llm-foundry", "mosaicml", "omegaconf"]

PRECISIONS = {"fp32": "fp32", "amp_fp16": "fp16", "amp_bf16": "bf16", "amp_fp8": "fp8"}
SHARDINGS = {"NO_SHARD": "none", "SHARD_GRAD_OP": "zero2", "FULL_SHARD": "fsdp"}
ATTENTIONS = {"torch": "eager", "flash": "flash", "flex": "flash"}


class Reached(Exception):
    """The command has merged its settings."""


def train(cfg):
    raise Reached(cfg)


def parse(case):
    command.train = train
    try:
        command.train_from_yaml(case.argv[1], case.argv[2:])
    except Reached as end:
        _, config = make_dataclass_and_log_config(end.args[0], TrainConfig, TRAIN_CONFIG_KEYS, transforms="all")
    command.validate_config(config)
    fsdp = (config.fsdp_config or {}) if case.ranks > 1 else {}
    read = {
        "micro_batch_size": config.device_train_microbatch_size,
        "gradient_accumulation_steps": config.device_train_grad_accum,
        "eval_batch_size": config.device_eval_batch_size,
        "activation_checkpointing": "full" if fsdp.get("activation_checkpointing") else "none",
        "offload_activations": "cpu" if fsdp.get("activation_cpu_offload") else "none",
        "precision": PRECISIONS[Precision(config.precision).value],
        "sharding": SHARDINGS[fsdp.get("sharding_strategy", "FULL_SHARD")] if fsdp else "none",
        "dataloader_workers": config.train_loader["num_workers"],
        "pin_memory": config.train_loader.get("pin_memory", True),
    }
    if config.max_seq_len == config.train_loader["dataset"]["max_seq_len"]:
        read["sequence_length"] = config.max_seq_len
    if kernel := config.model.get("attn_config", {}).get("attn_impl"):
        read["attention"] = ATTENTIONS[kernel]
    return read
