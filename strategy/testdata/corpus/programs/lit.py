"""Train with Lightning, and run out of memory in the phase that the first argument names."""

import sys

import torch
from torch import nn

import lightning as L
from starve import starve

WHEN = sys.argv[1]


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1024, 8192), nn.ReLU(), nn.Linear(8192, 1024))
        self.batch_size = 64

    def training_step(self, batch, _):
        if WHEN == "forward":
            starve("cuda")
        loss = self.net(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss

    def on_before_backward(self, _):
        if WHEN == "backward":
            starve("cuda")

    def on_before_optimizer_step(self, _):
        if WHEN == "optimizer":
            starve("cuda")

    def validation_step(self, batch, _):
        if WHEN == "eval":
            starve("cuda")
        self.log("val_loss", self.net(batch[0]).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8192, 1024)), batch_size=self.batch_size)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4096, 1024)), batch_size=2048)


module = Module()
trainer = L.Trainer(accelerator="gpu", devices=1, max_steps=3, logger=False, enable_checkpointing=False, num_sanity_val_steps=0)
if WHEN == "finder":
    torch.cuda.set_per_process_memory_fraction(0.0035)
    from lightning.pytorch.tuner import Tuner

    Tuner(trainer).scale_batch_size(module, mode="power", init_val=256, max_trials=8)
else:
    module.batch_size = 4096
trainer.fit(module)
