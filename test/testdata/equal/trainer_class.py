"""A regression, trained by a small class."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Sine(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.x = torch.rand(n, 1, generator=g) * 6

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.x[i].sin()


class Fitter:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.step_count = 0

    def fit(self, loader):
        self.net.train()
        self.opt.zero_grad()
        for epoch in range(self.cfg.epochs):
            for step, batch in enumerate(loader, 1):
                self.micro_step(batch)
                if step % self.cfg.grad_accum_steps == 0:
                    self.update()

    def micro_step(self, batch):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        loss = loss / self.cfg.grad_accum_steps
        loss.backward()

    def update(self):
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.step_count += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch_size", type=int, default=16)
    p.add_argument("--grad_accum_steps", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=2)
    cfg = p.parse_args()
    torch.manual_seed(0)
    Fitter(cfg).fit(DataLoader(Sine(64), batch_size=cfg.batch_size))


if __name__ == "__main__":
    main()
