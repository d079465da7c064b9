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
tower = nn.Linear(10, 6)
optimizer = torch.optim.SGD(tower.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    e = F.normalize(tower(x), dim=1)
    pos = (e * F.normalize(tower(x + 0.1), dim=1)).sum(1)
    neg = (e * e.roll(1, 0)).sum(1)
    loss = F.softplus(neg - pos).mean() / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
