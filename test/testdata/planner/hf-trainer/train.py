"""A Qwen2 or a GPT-2 with random weights, trained by Hugging Face's Trainer; DeepSpeed is the command line's business."""

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Qwen2Config, Qwen2ForCausalLM, Trainer, TrainerCallback, TrainingArguments

import alone  # noqa: F401


@dataclass
class ModelArguments:
    architecture: str = field(default="qwen2")
    layers: int = field(default=20)
    width: int = field(default=1024)
    vocabulary: int = field(default=24576)
    sequence: int = field(default=768)


class Tokens(torch.utils.data.Dataset):
    def __init__(self, vocabulary, length):
        self.vocabulary, self.length = vocabulary, length

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.randint(self.vocabulary, (self.length,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


class Watch(TrainerCallback):
    """Measures the optimizer's steps."""

    def __init__(self):
        self.seconds = []

    def on_step_begin(self, *args, **kwargs):
        self.begun = time.perf_counter()

    def on_step_end(self, *args, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.begun)


def created(shape):
    if shape.architecture == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=shape.vocabulary, n_positions=shape.sequence, n_embd=shape.width, n_layer=shape.layers, n_head=shape.width // 64, use_cache=False
            )
        )
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=shape.vocabulary,
            max_position_embeddings=shape.sequence,
            hidden_size=shape.width,
            intermediate_size=4 * shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.width // 64,
            num_key_value_heads=max(1, shape.width // 256),
            use_cache=False,
        )
    )


def main():
    if not torch.cuda.is_available():
        sys.argv += ["--use_cpu", "true"]  # which bf16 asks for
    shape, arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    if os.environ.get("TINY"):
        shape.layers, shape.width, shape.vocabulary, shape.sequence = 2, 128, 256, 32
    torch.manual_seed(arguments.seed)
    watch = Watch()
    trainer = Trainer(
        model=created(shape),
        args=arguments,
        train_dataset=Tokens(shape.vocabulary, shape.sequence),
        callbacks=[watch],
    )
    trainer.train()
    if trainer.is_world_process_zero():
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        samples = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
        speed = samples / statistics.median(watch.seconds[2:])
        print("RESULT", json.dumps({"peak": peak, "samples_per_second": speed}), flush=True)


if __name__ == "__main__":
    main()
