"""What verl's SFT trainer gets from its own configuration and the words that override it."""

import pathlib

import verl
from hydra import compose, initialize_config_dir
from verl.utils.config import omega_conf_to_dataclass

PACKAGES = ["verl", "hydra-core", "omegaconf", "torch"]

CONFIG = pathlib.Path(verl.__file__).parent / "trainer" / "config"


def parse(case):
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("sft_trainer_engine", overrides=case.argv[1:])
    engine = omega_conf_to_dataclass(config.engine)
    if config.data.train_batch_size % case.ranks:
        raise ValueError("train_batch_size is divided by the data-parallel ranks")
    if config.data.use_dynamic_bsz and config.data.max_token_len_per_gpu < config.data.max_length:
        raise ValueError("max_token_len must be greater than the sequence length")  # rearrange_micro_batches asserts it
    attention = config.model.override_config.get("attn_implementation", "flash_attention_2")  # as HFModelConfig does
    plan = {
        "attention": "flash" if attention.startswith("flash") else attention,
        "sequence_length": config.data.max_length,
        "activation_checkpointing": "full" if config.model.enable_gradient_checkpointing else "none",
        "offload_activations": "cpu" if config.model.enable_activation_offload else "none",
        "offload_optimizer": "cpu" if engine.strategy == "fsdp2" and engine.offload_policy else "none",
        "precision": {"bfloat16": "bf16", "float16": "fp16"}[engine.dtype],
        "dataloader_workers": config.data.num_workers,
        "micro_batch_size": config.data.max_token_len_per_gpu if config.data.use_dynamic_bsz else config.data.micro_batch_size_per_gpu,
    }
    return plan
