"""A GPT-2 with random weights, trained by Hugging Face's Trainer on a curriculum: short samples first."""

from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    layers: int = field(default=8)
    width: int = field(default=512)
    vocabulary: int = field(default=16384)


@dataclass
class DataArguments:
    samples: int = field(default=640)
    short_samples: int = field(default=384, metadata={"help": "how many samples come before the long ones"})
    short: int = field(default=64)
    long: int = field(default=512)


class Counting(torch.utils.data.Dataset):
    """Token sequences that count up in steps of one to four; they grow longer after a while."""

    def __init__(self, arguments, vocabulary):
        self.arguments, self.vocabulary = arguments, vocabulary

    def __len__(self):
        return self.arguments.samples

    def __getitem__(self, index):
        length = self.arguments.short if index < self.arguments.short_samples else self.arguments.long
        generator = torch.Generator().manual_seed(index)
        start, stride = (torch.randint(1, high, (1,), generator=generator) for high in (64, 5))
        tokens = (start + stride * torch.arange(length)) % min(64, self.vocabulary)
        return {"input_ids": tokens, "labels": tokens}


class CurriculumTrainer(Trainer):
    """A Trainer that takes the samples in their order."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def main():
    model_arguments, data_arguments, arguments = HfArgumentParser(
        (ModelArguments, DataArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    torch.manual_seed(arguments.seed)
    config = GPT2Config(
        vocab_size=model_arguments.vocabulary,
        n_positions=data_arguments.long,
        n_embd=model_arguments.width,
        n_layer=model_arguments.layers,
        n_head=model_arguments.width // 64,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        use_cache=False,
    )
    trainer = CurriculumTrainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Counting(data_arguments, model_arguments.vocabulary),
    )
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_state()


if __name__ == "__main__":
    main()
