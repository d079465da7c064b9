"""What Megatron-Bridge's ConfigContainer is after the overrides of a command."""

import importlib

import standins

standins.install(
    "transformer_engine", "megatron.energon", "tensorboard", "modelopt", "nvidia_resiliency_ext", "wandb",
    "qwen_vl_utils", "mamba_ssm", "causal_conv1d",
)

from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides  # noqa: E402

PACKAGES = ["megatron-bridge", "megatron-core", "torch"]

RECIPES = {"gpt3_175b_pretrain_config": "megatron.bridge.recipes.gpt.gpt3_175b"}
MODULES = {module: importlib.import_module(module) for module in RECIPES.values()}
PRECISIONS = {"bf16_mixed": "bf16", "fp16_mixed": "fp16"}


def parse(case):
    name = case.argv[case.argv.index("--recipe") + 1]
    overrides = [word for word in case.argv[1:] if "=" in word]
    if any(word in ("-mb", "-gb", "--micro_batch_size") for word in case.argv):
        return {}  # the script's own arguments, which the package does not bring along
    config = getattr(MODULES[RECIPES[name]], name)()
    config = process_config_with_overrides(config, cli_overrides=overrides) or config
    train, model, data, optimizer = config.train, config.model, config.dataset, config.optimizer
    assert train.global_batch_size % (train.micro_batch_size * case.ranks) == 0
    read = {
        "micro_batch_size": train.micro_batch_size,
        "activation_checkpointing": recompute(model),
        "offload_optimizer": offload(optimizer),
        "dataloader_workers": data.num_workers,
        "pin_memory": data.pin_memory,
    }
    if isinstance(config.mixed_precision, str):
        read["precision"] = PRECISIONS[config.mixed_precision]
    if model.seq_length == data.sequence_length:
        read["sequence_length"] = model.seq_length
    return read


def recompute(model):
    if model.recompute_granularity == "full":
        assert (model.recompute_method, model.recompute_num_layers) == ("uniform", 1)
    return model.recompute_granularity or "none"


def offload(optimizer):
    if not optimizer.optimizer_cpu_offload:
        return "none"
    assert optimizer.optimizer_offload_fraction == 1 and optimizer.use_precision_aware_optimizer
    return "cpu"
