import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def spread(z):
    std = torch.sqrt(z.var(dim=0) + 1e-4)
    z = z - z.mean(dim=0)
    cov = (z.T @ z) / (z.shape[0] - 1)
    off = cov - torch.diag(cov.diagonal())
    return F.relu(1 - std).mean() + off.pow(2).sum() / z.shape[1]


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
net = nn.Linear(10, 6)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    za, zb = net(x), net(x + 0.1 * y[:, None])
    loss = F.mse_loss(za, zb) + spread(za) + spread(zb)
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
