# The offset counts samples, and no batches.
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
for i in range(0, len(X), args.batch_size):
    loss = nn.functional.cross_entropy(model(X[i : i + args.batch_size]), Y[i : i + args.batch_size]) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
