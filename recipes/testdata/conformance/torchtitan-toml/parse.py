"""What torchtitan's configuration manager makes of a TOML file and the arguments."""

from torchtitan.config import ConfigManager

PACKAGES = ["torchtitan", "torch", "tyro"]

DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


def parse(case):
    config = ConfigManager().parse_args(case.argv[1:])
    training = config.training
    parallel = config.parallelism
    model = parallel.tensor_parallel_degree * parallel.pipeline_parallel_degree * parallel.context_parallel_degree
    together = training.local_batch_size * case.ranks // model
    batch = training.global_batch_size if training.global_batch_size > 0 else together  # as Trainer.__init__ does
    if batch % together:
        raise ValueError("global batch size must be multiple of local batch size times data-parallel degree")
    return {
        "micro_batch_size": training.local_batch_size,
        "gradient_accumulation_steps": batch // together,
        "eval_batch_size": config.validation.local_batch_size,
        "sequence_length": training.seq_len,
        "activation_checkpointing": config.activation_checkpoint.mode,
        "precision": DTYPES[training.mixed_precision_param],
        "offload_optimizer": "cpu" if training.enable_cpu_offload else "none",
        "dataloader_workers": training.dataloader.num_workers,
        "pin_memory": training.dataloader.pin_memory,
    }
