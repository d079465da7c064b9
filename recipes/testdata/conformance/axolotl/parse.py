"""What Axolotl's validator makes of a configuration file and the arguments that override it."""

import json
import os
import pathlib

os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"

import deepspeed
import fire
import zero
from axolotl.cli import config
from axolotl.utils import environment
from transformers import TrainingArguments

PACKAGES = ["axolotl", "transformers", "accelerate", "torch"]

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "paged_adamw_8bit": "paged-adamw-8bit",
}

# A model that Axolotl can look up without the network.
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256}


# There is no device to ask, and none for NCCL.
environment.check_cuda_p2p_support = lambda: True
init_distributed = deepspeed.comm.init_distributed
deepspeed.comm.init_distributed = lambda dist_backend, **rest: init_distributed(dist_backend="gloo", **rest)


def parse(case):
    os.environ["WORLD_SIZE"] = "1"  # it would wait for the other ranks
    model = pathlib.Path("model")
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL))
    cfg = fire.Fire(config.load_cfg, command=case.argv[1:], serialize=lambda _: "")
    if cfg.auto_find_batch_size and case.name.endswith("after"):
        raise ValueError("auto_find_batch_size is on")
    optimizer = str(getattr(cfg.optimizer, "value", cfg.optimizer))
    plan = {
        "micro_batch_size": cfg.micro_batch_size,
        "gradient_accumulation_steps": cfg.gradient_accumulation_steps,
        "eval_batch_size": cfg.eval_batch_size,
        "sequence_length": cfg.sequence_len,
        "activation_checkpointing": "full" if cfg.gradient_checkpointing else "none",
        "offload_activations": "cpu" if cfg.activation_offloading else "none",
        "optimizer": OPTIMIZERS.get(optimizer, optimizer),
        "dataloader_workers": cfg.dataloader_num_workers,
        "pin_memory": cfg.dataloader_pin_memory is not False,
    }
    if cfg.attn_implementation:
        plan["attention"] = cfg.attn_implementation
    if cfg.bf16 is not None:
        plan["precision"] = "bf16" if cfg.bf16 in (True, "full") else "fp32"
    if cfg.deepspeed:
        plan.update(through_deepspeed(case, cfg))
    return plan


def through_deepspeed(case, cfg):
    """What DeepSpeed reads once the Trainer has filled in the configuration from the arguments that Axolotl gives it."""
    args = TrainingArguments(
        output_dir=cfg.output_dir, per_device_train_batch_size=cfg.micro_batch_size, gradient_accumulation_steps=cfg.gradient_accumulation_steps,
        bf16=bool(cfg.bf16), use_cpu=True, deepspeed=cfg.deepspeed,
    )
    ds = args.hf_deepspeed_config or args.deepspeed_plugin.hf_ds_config
    ds.trainer_config_process(args)
    return zero.read(ds.config, case.ranks, batch=False)
