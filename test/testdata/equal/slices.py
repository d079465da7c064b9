# Batches are slices of the data.
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
X, Y = torch.randn(64, 10), torch.randint(4, (64,))
model = nn.Linear(10, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    order = torch.randperm(len(X))
    for n, start in enumerate(range(0, len(X), args.batch_size)):
        index = order[start : start + args.batch_size]
        loss = nn.functional.cross_entropy(model(X[index]), Y[index]) / args.accum
        loss.backward()
        if (n + 1) % args.accum == 0:
            optimizer.step()
            optimizer.zero_grad()
