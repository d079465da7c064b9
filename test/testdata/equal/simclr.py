import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def nt_xent(z, tau):
    z = F.normalize(z, dim=1)
    n = z.shape[0] // 2
    sim = torch.mm(z, z.t()) / tau
    sim.fill_diagonal_(-1e9)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    z = torch.cat([encoder(x), encoder(x + 0.1 * y[:, None])])
    loss = nt_xent(z, 0.5) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
