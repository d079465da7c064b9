#!/usr/bin/env python3
import argparse
import json
import math
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def get_args():
    p = argparse.ArgumentParser(description="MLP-Mixer on synthetic blobs",
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("-b", "--batch-size", type=int, default=64, metavar="N",
                   help="mini-batch size")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--wd", "--weight-decay", dest="weight_decay", type=float, default=0.05)
    p.add_argument("--warmup", type=int, default=5, help="warmup steps")
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--depth", type=int, default=6)
    p.add_argument("--patch", type=int, default=4)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--num-samples", type=int, default=480)
    p.add_argument("-j", "--workers", type=int, default=0)
    p.add_argument("--clip-grad", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("-o", "--out", default="runs/mixer")
    p.add_argument("--log-interval", type=int, default=2)
    return p.parse_args()


class FeedForward(nn.Sequential):
    def __init__(self, dim, hidden, dropout):
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout),
                         nn.Linear(hidden, dim), nn.Dropout(dropout))


class MixerLayer(nn.Module):
    def __init__(self, n_tokens, dim, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.tokens = FeedForward(n_tokens, n_tokens * 2, dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.channels = FeedForward(dim, dim * 4, dropout)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, image=32, patch=4, dim=96, depth=6, classes=10, dropout=0.1):
        super().__init__()
        n_tokens = (image // patch) ** 2
        self.embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.layers = nn.Sequential(*[MixerLayer(n_tokens, dim, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(1))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    prototypes = torch.randn(10, 3, 32, 32, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    x = 0.35 * prototypes[y] + torch.randn(n, 3, 32, 32, generator=g)
    return TensorDataset(x, y)


def evaluate(model, loader, device):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x.to(device)).argmax(-1) == y.to(device)).sum().item()
            total += len(y)
    return hits / total


def main():
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "args.json"), "w") as f:
        json.dump(vars(args), f, indent=2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    full = make_data(args.num_samples + 200, args.seed)
    train_set, val_set = random_split(full, [args.num_samples, 200],
                                      generator=torch.Generator().manual_seed(args.seed))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True,
                              num_workers=args.workers)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=args.workers)

    model = Mixer(patch=args.patch, dim=args.dim, depth=args.depth, dropout=args.dropout).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    total_steps = args.epochs * len(train_loader)

    def lr_at(step):
        if step < args.warmup:
            return (step + 1) / args.warmup
        t = (step - args.warmup) / max(1, total_steps - args.warmup)
        return 0.5 * (1 + math.cos(math.pi * t))

    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
    loss_fn = nn.CrossEntropyLoss()

    it = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        for i, (x, y) in enumerate(train_loader):
            x, y = x.to(device), y.to(device)
            loss = loss_fn(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            opt.step()
            sched.step()
            if it % args.log_interval == 0:
                print("Train Epoch: {} [{}/{}]\tIter: {}\tLoss: {:.6f}".format(
                    epoch, i * args.batch_size, len(train_set), it, loss.item()), flush=True)
            it += 1
        print("Epoch {}: val acc {:.2%}".format(epoch, evaluate(model, val_loader, device)), flush=True)

    torch.save({"epoch": args.epochs, "state_dict": model.state_dict(), "opt": opt.state_dict(),
                "args": vars(args)}, os.path.join(args.out, "last.pth"))


if __name__ == "__main__":
    main()
