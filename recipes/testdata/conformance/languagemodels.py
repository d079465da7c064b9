"""fairseq2's own reading of a command for recipes.lm.sft, which is in its repository only."""

import contextlib
import io
import sys

import sources

COMMIT = "a136b39778ca6dc24dff109fa0e200078d869e2a"
PACKAGES = ["fairseq2", "torch", ("recipes", COMMIT[:8])]

CONFIG = sources.file("facebookresearch/fairseq2", COMMIT, "recipes/lm/sft/config.py", "f4a58e74")
sys.path.insert(0, str(CONFIG.parents[3]))

from fairseq2.recipe.cli import main  # noqa: E402
from recipes.lm.sft.recipe import LMSFTRecipe  # noqa: E402
from ruamel.yaml import YAML  # noqa: E402

CHECKPOINTING = {"off": "none", "layerwise": "full"}
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}
ATTENTION = {"naive": "eager", "torch_math": "eager", "torch": "sdpa", "torch_mem_efficient": "sdpa", "torch_flash": "flash", "flash2": "flash", "flash3": "flash"}


def read(case, batch):
    """The plan in what the recipe dumps; batch is the key that counts a micro batch."""
    sys.argv = [case.argv[0], "--dump-config", *case.argv[1:]]
    dumped = io.StringIO()
    with contextlib.redirect_stdout(dumped):
        main(LMSFTRecipe())
    config = YAML(typ="safe").load(dumped.getvalue())  # 1.2, in which off is a word
    dataset, trainer, common = config["dataset"], config["trainer"], config["common"]
    if (batch == "batch_size") != (dataset["batch_size"] is not None):
        raise ValueError(f"batches are made by {dataset}")
    mixed = trainer["mixed_precision"]
    if common["no_sweep_dir"] != ("common.no_sweep_dir=true" in case.argv):
        raise ValueError("the folder's name is chosen otherwise")
    return {
        "micro_batch_size": dataset[batch],
        "gradient_accumulation_steps": trainer["grad_accumulation"]["num_batches"],
        "sequence_length": dataset["max_seq_len"],
        "activation_checkpointing": CHECKPOINTING[trainer["activation_checkpointing"]["mode"]],
        "precision": "fp32" if mixed["mode"] == "off" else PRECISIONS[mixed["dtype"].removeprefix("torch.")],
        "attention": ATTENTION[common["torch"]["default_sdpa"]],
        "sharding": {"ddp": "none", "fsdp": "fsdp"}[trainer["data_parallelism"]],
    }
