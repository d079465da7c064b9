"""A small GPT, trained by a Lightning Trainer on a curriculum: its later epochs have longer sequences."""

import argparse

import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger


class Counting(torch.utils.data.Dataset):
    """Sequences that count up in steps of one to four."""

    def __init__(self, epoch, samples, length):
        self.epoch, self.samples, self.length = epoch, samples, length

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.epoch * self.samples + index)
        start, stride = (torch.randint(1, high, (1,), generator=generator) for high in (64, 5))
        return (start + stride * torch.arange(self.length + 1)) % 64


class Curriculum(pl.LightningDataModule):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def train_dataloader(self):
        epoch = self.trainer.current_epoch
        length = self.args.short if epoch < self.args.short_epochs else self.args.long
        return torch.utils.data.DataLoader(
            Counting(epoch, self.args.samples, length), batch_size=self.args.batch_size, drop_last=True
        )


class GPT(pl.LightningModule):
    def __init__(self, layers, width, vocabulary, long, lr, batch_size, accumulate_grad_batches):
        super().__init__()
        self.save_hyperparameters()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(long, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)

    def training_step(self, tokens, _):
        logits = self(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(tokens))
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--accumulate_grad_batches", type=int, default=1)
    p.add_argument("--precision", default="32-true")
    p.add_argument("--max_epochs", type=int, default=6)
    p.add_argument("--devices", type=int, default=1)
    p.add_argument("--default_root_dir", default=".")
    p.add_argument("--ckpt_path")
    p.add_argument("--samples", type=int, default=256)
    p.add_argument("--short_epochs", type=int, default=3)
    p.add_argument("--short", type=int, default=64)
    p.add_argument("--long", type=int, default=512)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--vocabulary", type=int, default=4096)
    p.add_argument("--lr", type=float, default=3e-4)
    return p.parse_args()


def main():
    args = parse_args()
    pl.seed_everything(0)
    model = GPT(
        args.layers, args.width, args.vocabulary, args.long, args.lr, args.batch_size, args.accumulate_grad_batches
    )
    trainer = pl.Trainer(
        accelerator="auto",
        devices=args.devices,
        precision=args.precision,
        max_epochs=args.max_epochs,
        accumulate_grad_batches=args.accumulate_grad_batches,
        default_root_dir=args.default_root_dir,
        reload_dataloaders_every_n_epochs=1,
        logger=CSVLogger(args.default_root_dir, flush_logs_every_n_steps=1),
        callbacks=[ModelCheckpoint()],
        log_every_n_steps=1,
        enable_model_summary=False,
    )
    trainer.fit(model, Curriculum(args), ckpt_path=args.ckpt_path)


if __name__ == "__main__":
    main()
