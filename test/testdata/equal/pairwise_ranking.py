import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
scorer = nn.Linear(10, 1)
optimizer = torch.optim.SGD(scorer.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    s = scorer(x).squeeze(1)
    difference = s[:, None] - s[None, :]
    worse = (y[:, None] > y[None, :]).float()
    loss = (F.softplus(-difference) * worse).mean()
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
