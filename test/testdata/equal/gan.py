import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
G, D = nn.Linear(4, 10), nn.Sequential(nn.Linear(10, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
opt_g, opt_d = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4)
bce = nn.BCEWithLogitsLoss()
for i, (real, z) in enumerate(DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 4)), batch_size=args.batch_size)):
    fake = G(z)
    d_loss = bce(D(real), torch.ones(len(real), 1)) + bce(D(fake.detach()), torch.zeros(len(real), 1))
    (d_loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        opt_d.step()
        opt_d.zero_grad()
    g_loss = bce(D(fake), torch.ones(len(real), 1))
    (g_loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        opt_g.step()
        opt_g.zero_grad()
