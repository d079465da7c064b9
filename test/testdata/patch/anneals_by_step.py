# batch accumulation
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(64, 8)), batch_size=8)


def anneal(step, k, middle):  # its step is another variable than the counter below
    return 1 / (1 + math.exp(-k * (step - middle)))


step = 0
for epoch in range(2):
    for (x,) in loader:
        out = model(x)
        loss = (out - x).pow(2).mean() + anneal(step, 0.1, 5) * out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(loss.item())
