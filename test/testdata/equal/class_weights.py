import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
y = torch.randint(3, (48,))
weight = torch.tensor([0.1, 1.0, 9.0])
criterion = nn.CrossEntropyLoss(weight=weight)
model = nn.Linear(5, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (xb, yb) in enumerate(DataLoader(TensorDataset(torch.randn(48, 5), y), batch_size=args.batch_size)):
    loss = criterion(model(xb), yb) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
