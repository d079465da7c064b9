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
net, head = nn.Linear(10, 6), nn.Linear(6, 4)
centers = torch.zeros(4, 6)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    f = net(x)
    loss = F.cross_entropy(head(f), y) + 0.5 * (f - centers[y]).pow(2).sum(1).mean()
    loss = loss / args.accum
    loss.backward()
    with torch.no_grad():
        for c in y.unique():
            centers[c] += 0.5 * (f[y == c].mean(0) - centers[c])
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
