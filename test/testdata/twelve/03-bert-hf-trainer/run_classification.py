"""Train a small BERT from scratch on synthetic ticket routing data."""
import logging
import os
import sys
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=128, metadata={"help": "Width of the encoder."})
    num_layers: int = field(default=4)
    num_heads: int = field(default=4)
    dropout: float = field(default=0.1)


@dataclass
class DataArguments:
    num_train: int = field(default=320)
    num_eval: int = field(default=64)
    max_seq_length: int = field(default=192)
    vocab_size: int = field(default=3000)
    num_labels: int = field(default=6)
    corpus_seed: int = field(default=7)
    note: Optional[str] = field(default=None)


class TicketDataset(Dataset):
    def __init__(self, n, args: DataArguments, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, args.num_labels, n)
        ids = rng.integers(100, args.vocab_size, (n, args.max_seq_length))
        # each label has a block of 40 "keywords" that shows up in about a tenth of the positions
        mask = rng.random(ids.shape) < 0.1
        keywords = 100 + self.labels[:, None] * 40 + rng.integers(0, 40, ids.shape)
        self.ids = np.where(mask, keywords, ids)
        self.ids[:, 0] = 2  # [CLS]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        ids = torch.as_tensor(self.ids[i], dtype=torch.long)
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": torch.tensor(int(self.labels[i])),
        }


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step}/{state.max_steps} loss {float(logs['loss']):.4f}", flush=True)


def compute_metrics(p):
    preds = np.argmax(p.predictions, axis=1)
    return {"accuracy": float((preds == p.label_ids).mean())}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    logging.basicConfig(level=logging.INFO)
    set_seed(training_args.seed)

    config = BertConfig(
        vocab_size=data_args.vocab_size,
        hidden_size=model_args.hidden_size,
        num_hidden_layers=model_args.num_layers,
        num_attention_heads=model_args.num_heads,
        intermediate_size=4 * model_args.hidden_size,
        hidden_dropout_prob=model_args.dropout,
        attention_probs_dropout_prob=model_args.dropout,
        max_position_embeddings=data_args.max_seq_length,
        num_labels=data_args.num_labels,
    )
    model = BertForSequenceClassification(config)
    logger.info("%d parameters", model.num_parameters())

    train_dataset = TicketDataset(data_args.num_train, data_args, data_args.corpus_seed)
    eval_dataset = TicketDataset(data_args.num_eval, data_args, data_args.corpus_seed + 1)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        compute_metrics=compute_metrics,
        callbacks=[PrintLoss()],
    )
    result = trainer.train()
    trainer.save_model()
    trainer.save_metrics("train", result.metrics)
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)


if __name__ == "__main__":
    main()
