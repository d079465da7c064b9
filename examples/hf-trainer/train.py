"""Hugging Face's Trainer on a GPT-2 with random weights.

All of Trainer's arguments are on the command line, as HfArgumentParser reads
them; the model and the data are made here, so that nothing is downloaded.
"""

import pathlib
from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

TEXT = pathlib.Path(__file__).resolve().parent.parent / "quickstart" / "opticks.txt"


@dataclass
class ModelArguments:
    layers: int = field(default=12)
    width: int = field(default=768)
    sequence: int = field(default=512)


class Bytes(torch.utils.data.Dataset):
    """Windows of a text, one byte a token."""

    def __init__(self, path, sequence):
        self.data = torch.tensor(list(path.read_bytes()), dtype=torch.long)
        self.sequence = sequence

    def __len__(self):
        return (len(self.data) - 1) // 16

    def __getitem__(self, index):
        start = (index * 16) % (len(self.data) - self.sequence)
        window = self.data[start : start + self.sequence]
        return {"input_ids": window, "labels": window}


def main():
    model_arguments, arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    torch.manual_seed(arguments.seed)
    config = GPT2Config(
        vocab_size=50257,
        n_positions=model_arguments.sequence,
        n_embd=model_arguments.width,
        n_layer=model_arguments.layers,
        n_head=model_arguments.width // 64,
        use_cache=False,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Bytes(TEXT, model_arguments.sequence),
    )
    result = trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    print(f"trained: loss {result.training_loss:.4f} in {result.global_step} steps", flush=True)


if __name__ == "__main__":
    main()
