# batch accumulation
import torch
from torch import nn

BATCH = 8
torch.manual_seed(0)
x, y = torch.randn(44, 10), torch.randint(4, (44,))


def train(model, optimizer, B):
    criterion = nn.CrossEntropyLoss()
    n = len(x)
    for step, i in enumerate(range(0, n, B)):
        end = min(i + B, n)
        rows = slice(i, end)
        optimizer.zero_grad()
        loss = criterion(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        print(step, loss.item())


model = nn.Linear(10, 4)
train(model, torch.optim.Adam(model.parameters(), lr=0.1), BATCH)
