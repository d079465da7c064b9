import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
enc, dec = nn.Linear(10, 8), nn.Linear(4, 10)
optimizer = torch.optim.Adam([*enc.parameters(), *dec.parameters()])
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.rand(48, 10)), batch_size=args.batch_size)):
    mu, logvar = enc(x).chunk(2, dim=1)
    z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
    recon = nn.functional.mse_loss(dec(z), x, reduction="none").sum(1).mean()
    kl = (-0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)).mean()
    loss = (recon + kl) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
