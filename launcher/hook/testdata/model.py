# A model of repeated blocks and data for it, for the scripts beside this one.
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Net(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(n)])
        self.head = nn.Linear(d, 1)

    def forward(self, x, labels=None):
        for block in self.blocks:
            x = block(x)
        x = self.head(x)
        return x if labels is None else {"loss": (x - labels).pow(2).mean(), "logits": x}


def data(n=64, d=16):
    return torch.utils.data.TensorDataset(torch.randn(n, d), torch.randn(n, 1))
