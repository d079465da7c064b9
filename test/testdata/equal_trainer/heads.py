"""Small transformers with random weights, trained by the Trainer with SGD.

What it prints last is the loss of the training, and how much memory it had before the first
forward and at the end of one: of the GPU, or of the process's data where there is none.
"""

import json
from dataclasses import dataclass, field

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
)

LABELS, VOCABULARY = 5, 500


@dataclass
class Options:
    head: str = field(default="classification")
    width: int = field(default=32)
    layers: int = field(default=2)
    length: int = field(default=16)
    samples: int = field(default=96)
    dropout: float = field(default=0.0)
    padded: bool = field(default=False, metadata={"help": "samples of several lengths"})


def encoder(o):
    return BertConfig(
        vocab_size=VOCABULARY, hidden_size=o.width, num_hidden_layers=o.layers, num_attention_heads=4, intermediate_size=4 * o.width,
        max_position_embeddings=o.length, hidden_dropout_prob=o.dropout, attention_probs_dropout_prob=o.dropout, num_labels=LABELS,
    )


def build(o):
    if o.head == "classification":
        return BertForSequenceClassification(encoder(o))
    if o.head == "tokens":
        return BertForTokenClassification(encoder(o))
    if o.head == "masked":
        return BertForMaskedLM(encoder(o))
    if o.head == "gpt2":
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=VOCABULARY, n_positions=o.length, n_embd=o.width, n_layer=o.layers, n_head=4,
            embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False))
    if o.head == "llama":
        return LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=o.width, intermediate_size=2 * o.width, num_hidden_layers=o.layers,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=o.length, use_cache=False))
    if o.head == "seq2seq":
        return T5ForConditionalGeneration(T5Config(
            vocab_size=VOCABULARY, d_model=o.width, d_kv=8, d_ff=2 * o.width, num_layers=o.layers, num_heads=4, dropout_rate=0.0,
            decoder_start_token_id=0, use_cache=False))
    raise SystemExit("no head %s" % o.head)


class Samples(torch.utils.data.Dataset):
    def __init__(self, o):
        self.o = o

    def __len__(self):
        return self.o.samples

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        length = int(torch.randint(3, self.o.length + 1, (), generator=g)) if self.o.padded else self.o.length
        ids = torch.randint(1, VOCABULARY, (length,), generator=g)
        if self.o.head == "classification":
            return {"input_ids": ids, "labels": ids[0] % LABELS}
        return {"input_ids": ids, "labels": ids % LABELS if self.o.head == "tokens" else ids}


def collate(rows):
    ids = [r["input_ids"] for r in rows]
    batch = {"input_ids": pad_sequence(ids, batch_first=True), "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)}
    labels = [r["labels"] for r in rows]
    batch["labels"] = torch.stack(labels) if labels[0].dim() == 0 else pad_sequence(labels, batch_first=True, padding_value=-100)
    return batch


def memory():
    """Gives the bytes of the GPU, or of the process's data, which a ceiling on the CPU is of."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmData"))


class Peak:
    """Reads the memory as the model's first forward begins, and as each ends."""

    def __init__(self, model):
        self.before = self.peak = 0
        model.register_forward_pre_hook(self.begins)
        model.register_forward_hook(self.ends)

    def begins(self, *_):
        self.before = self.before or memory()

    def ends(self, *_):
        self.peak = max(self.peak, memory())


def main():
    options, arguments = HfArgumentParser((Options, TrainingArguments)).parse_args_into_dataclasses()
    torch.manual_seed(arguments.seed)
    model = build(options)
    peak = Peak(model)
    trainer = Trainer(model=model, args=arguments, train_dataset=Samples(options), data_collator=collate)
    trained = trainer.train()
    print("RESULT", json.dumps({"train_loss": trained.training_loss, "before": peak.before, "peak": max(peak.peak, memory() if torch.cuda.is_available() else 0)}), flush=True)


if __name__ == "__main__":
    main()
