"""A Llama with random weights, trained by Hugging Face's Trainer; DeepSpeed is the command line's business."""

import pathlib
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, LlamaConfig, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    layers: int = field(default=24)
    width: int = field(default=1024)
    vocabulary: int = field(default=8192)
    train_layers: int = field(default=0, metadata={"help": "train the last layers only, 0: all"})


@dataclass
class DataArguments:
    samples: int = field(default=512)
    sequence: int = field(default=256)


class Counting(torch.utils.data.Dataset):
    """Token sequences that count up in steps of one to four."""

    def __init__(self, arguments):
        self.arguments = arguments

    def __len__(self):
        return self.arguments.samples

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        start, stride = (torch.randint(1, high, (1,), generator=generator) for high in (64, 5))
        tokens = (start + stride * torch.arange(self.arguments.sequence)) % 64
        return {"input_ids": tokens, "labels": tokens}


def freeze(model, train_layers):
    """Keep all but the last layers and the head as they are."""
    model.requires_grad_(False)
    for module in [*model.model.layers[-train_layers:], model.model.norm, model.lm_head]:
        module.requires_grad_(True)


def device(offload):
    """Where DeepSpeed says that something lives."""
    return "none" if offload is None else str(getattr(offload.device, "value", offload.device))


def on_disk(offload):
    """How many tensors DeepSpeed keeps in files there."""
    return 0 if device(offload) != "nvme" else len(list(pathlib.Path(offload.nvme_path).rglob("*.swp")))


def main():
    model_arguments, data_arguments, arguments = HfArgumentParser(
        (ModelArguments, DataArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    torch.manual_seed(arguments.seed)
    config = LlamaConfig(
        vocab_size=model_arguments.vocabulary,
        max_position_embeddings=data_arguments.sequence,
        hidden_size=model_arguments.width,
        intermediate_size=model_arguments.width * 11 // 4,
        num_hidden_layers=model_arguments.layers,
        num_attention_heads=model_arguments.width // 64,
        num_key_value_heads=model_arguments.width // 64,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config)
    if model_arguments.train_layers:
        freeze(model, model_arguments.train_layers)
    trainer = Trainer(model=model, args=arguments, train_dataset=Counting(data_arguments))
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_state()
    if trainer.is_deepspeed_enabled and trainer.is_world_process_zero():
        engine = trainer.model_wrapped
        optimizer, parameters = engine.zero_offload_optimizer(), engine.zero_offload_param()
        print(
            f"DeepSpeed: stage {engine.zero_optimization_stage()},"
            f" optimizer on {device(optimizer)}, parameters on {device(parameters)}",
            flush=True,
        )
        if on_disk(optimizer) and on_disk(parameters):
            print("DeepSpeed: there are swap files", flush=True)


if __name__ == "__main__":
    main()
