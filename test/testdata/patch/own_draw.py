# accumulation
import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
p.add_argument("--iters", type=int, default=6)
opt = p.parse_args()
torch.manual_seed(0)
data = torch.randint(0, 20, (400,))


def batch():
    i = torch.randint(len(data) - 9, (opt.bs,))
    w = torch.stack([data[j:j + 9] for j in i])
    return w[:, :-1], w[:, 1:]


model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
optim = torch.optim.AdamW(model.parameters(), lr=1e-2)
for it in range(1, opt.iters + 1):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    print(f"iter {it} loss {loss.item():.4f}")
