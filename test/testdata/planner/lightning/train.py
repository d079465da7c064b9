"""A small GPT, trained by a Lightning Trainer. Its layers have no switch for recomputing them."""

import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

import alone  # noqa: F401

RECOMPUTE = False


class Tokens(torch.utils.data.Dataset):
    def __init__(self, samples, length, vocabulary):
        self.samples, self.length, self.vocabulary = samples, length, vocabulary

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return torch.randint(self.vocabulary, (self.length + 1,), generator=torch.Generator().manual_seed(index))


class GPT(pl.LightningModule):
    def __init__(self, layers, width, vocabulary, length):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.seconds, self.begun = [], None

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        for block in self.blocks:
            if RECOMPUTE:
                x = checkpoint(lambda y, b=block: b(y, src_mask=mask, is_causal=True), x, use_reentrant=False)
            else:
                x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)

    def training_step(self, tokens, _):
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def on_before_zero_grad(self, *_):
        """Is called once an optimizer's step: when it is over."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self.begun is not None:
            self.seconds.append(now - self.begun)
        self.begun = now

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch_size", type=int, default=16)
    p.add_argument("--accumulate_grad_batches", type=int, default=1)
    p.add_argument("--precision", default="bf16-mixed")
    p.add_argument("--max_steps", type=int, default=12)
    p.add_argument("--devices", type=int, default=1)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--width", type=int, default=1280)
    p.add_argument("--length", type=int, default=768)
    p.add_argument("--vocabulary", type=int, default=8192)
    return p.parse_args()


def main():
    args = parse_args()
    if os.environ.get("TINY"):
        args.layers, args.width, args.length, args.vocabulary, args.max_steps = 2, 128, 32, 256, 6
    pl.seed_everything(0)
    model = GPT(args.layers, args.width, args.vocabulary, args.length)
    samples = args.batch_size * args.accumulate_grad_batches * args.max_steps
    data = Tokens(samples, args.length, args.vocabulary)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size, drop_last=True)
    trainer = pl.Trainer(
        accelerator="auto",
        devices=args.devices,
        precision=args.precision,
        max_epochs=1,
        accumulate_grad_batches=args.accumulate_grad_batches,
        default_root_dir="out",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    globally = args.batch_size * args.accumulate_grad_batches
    speed = globally / statistics.median(model.seconds[2:])
    print("RESULT", json.dumps({"peak": peak, "samples_per_second": speed}), flush=True)


if __name__ == "__main__":
    main()
