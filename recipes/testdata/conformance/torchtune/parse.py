"""What torchtune's recipes get from a configuration file and the words that override it."""

from torchtune import config, training
import torch

PACKAGES = ["torchtune", "torch", "omegaconf"]

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@config.parse
def recipe(cfg):
    """The settings as the recipes look them up. config.parse ends with what is returned here."""
    checkpointing = cfg.get("enable_activation_checkpointing", False)
    offloading = cfg.get("enable_activation_offloading", False)
    if offloading and not checkpointing:
        raise RuntimeError("enable_activation_offloading should only be True when enable_activation_checkpointing is True")
    if cfg.get("optimizer_in_bwd", False) and cfg.gradient_accumulation_steps > 1:
        raise RuntimeError("Gradient accumulation is not supported with optimizer in bwd.")
    return {
        "micro_batch_size": cfg.batch_size,
        "gradient_accumulation_steps": cfg.gradient_accumulation_steps,
        "sequence_length": cfg.tokenizer.max_seq_len,
        "activation_checkpointing": "full" if checkpointing else "none",
        "offload_activations": "cpu" if offloading else "none",
        "precision": DTYPES[training.get_dtype(cfg.dtype, torch.device("cpu"))],
        "offload_optimizer": "cpu" if cfg.get("fsdp_cpu_offload", False) else "none",
    }


def parse(case):
    try:
        recipe()
    except SystemExit as end:
        if isinstance(end.code, dict):
            return end.code
        raise
    raise RuntimeError("the recipe did not end")
