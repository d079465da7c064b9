from argparse import ArgumentParser

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset


class CellsDataset(Dataset):
    """Random discs on a noisy background; the mask is the union of the discs."""

    def __init__(self, n, size, seed):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:size, :size]
        self.images = np.empty((n, 1, size, size), np.float16)
        self.masks = np.zeros((n, size, size), np.uint8)
        for i in range(n):
            m = np.zeros((size, size), bool)
            for _ in range(rng.randint(3, 9)):
                cy, cx, r = rng.randint(0, size), rng.randint(0, size), rng.randint(4, size // 8)
                m |= (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            self.masks[i] = m
            self.images[i, 0] = m * rng.uniform(0.5, 1.5) + 0.7 * rng.randn(size, size)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        return (torch.from_numpy(self.images[idx].astype(np.float32)),
                torch.from_numpy(self.masks[idx].astype(np.float32)))


def double_conv(cin, cout, p):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Dropout2d(p),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class LitUNet(pl.LightningModule):
    def __init__(self, base=12, dropout=0.1, lr=2e-3, batch_size=16, image_size=96, train_samples=240, **kwargs):
        super().__init__()
        self.save_hyperparameters()
        b = base
        self.down1 = double_conv(1, b, dropout)
        self.down2 = double_conv(b, 2 * b, dropout)
        self.mid = double_conv(2 * b, 4 * b, dropout)
        self.up2 = nn.ConvTranspose2d(4 * b, 2 * b, 2, stride=2)
        self.dec2 = double_conv(4 * b, 2 * b, dropout)
        self.up1 = nn.ConvTranspose2d(2 * b, b, 2, stride=2)
        self.dec1 = double_conv(2 * b, b, dropout)
        self.out = nn.Conv2d(b, 1, 1)

    @staticmethod
    def add_model_specific_args(parent_parser):
        parser = parent_parser.add_argument_group("LitUNet")
        parser.add_argument("--base", type=int, default=12)
        parser.add_argument("--dropout", type=float, default=0.1)
        parser.add_argument("--lr", type=float, default=2e-3)
        parser.add_argument("--batch_size", type=int, default=16)
        parser.add_argument("--image_size", type=int, default=96)
        parser.add_argument("--train_samples", type=int, default=240)
        return parent_parser

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(F.max_pool2d(d1, 2))
        m = self.mid(F.max_pool2d(d2, 2))
        u2 = self.dec2(torch.cat([self.up2(m), d2], 1))
        u1 = self.dec1(torch.cat([self.up1(u2), d1], 1))
        return self.out(u1).squeeze(1)

    def loss(self, logits, y):
        bce = F.binary_cross_entropy_with_logits(logits, y)
        p = torch.sigmoid(logits)
        dice = 1 - (2 * (p * y).sum((1, 2)) + 1) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)
        return bce + dice.mean()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        if batch_idx % 2 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}", flush=True)
        return loss

    def training_epoch_end(self, outputs):
        avg = torch.stack([o["loss"] for o in outputs]).mean()
        print(f"epoch {self.current_epoch} mean train loss {avg:.4f}", flush=True)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("val_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "monitor": "val_loss"}}

    def setup(self, stage=None):
        self.train_set = CellsDataset(self.hparams.train_samples, self.hparams.image_size, seed=0)
        self.val_set = CellsDataset(32, self.hparams.image_size, seed=1)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, num_workers=0)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=8, num_workers=0)


def main(args):
    pl.seed_everything(args.seed)
    model = LitUNet(**vars(args))
    trainer = pl.Trainer.from_argparse_args(
        args,
        logger=CSVLogger("logs", name="unet"),
        callbacks=[
            ModelCheckpoint(dirpath="checkpoints", save_last=True, monitor="val_loss"),
            LearningRateMonitor("epoch"),
        ],
        log_every_n_steps=5,
    )
    trainer.fit(model)
    trainer.save_checkpoint("checkpoints/final.ckpt")


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--seed", type=int, default=2023)
    parser = LitUNet.add_model_specific_args(parser)
    parser = pl.Trainer.add_argparse_args(parser)
    main(parser.parse_args())
