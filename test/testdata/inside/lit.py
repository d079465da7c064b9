# A Lightning script: module, loader and Trainer in code.
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import alone  # noqa: F401

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layer = lambda: nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, activation="gelu")
        self.layers = nn.ModuleList(layer() for _ in range(12))
        self.head = nn.Linear(1024, 10)
        self.losses, self.seconds = [], []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.detach())
        return loss

    def on_before_zero_grad(self, *args):
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 512, 1024), torch.randint(10, (256,)))
net = Net()
trainer = pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(net, DataLoader(data, batch_size=32, shuffle=True))
times = [b - a for a, b in zip(net.seconds[2:], net.seconds[3:])]
print("RESULT", json.dumps({"losses": [float(x) for x in net.losses], "seconds": min(times), "each": [b - a for a, b in zip(net.seconds, net.seconds[1:])], "peak": torch.cuda.max_memory_allocated(), "steps": trainer.global_step}))
