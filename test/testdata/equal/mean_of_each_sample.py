# Each sample's mean is over its own pixels, and the batch's is over the samples.
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 12))

    def training_loss(self, x):
        return (self.net(x) - x).pow(2).mean(dim=tuple(range(1, x.dim()))).mean()


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.rand(48, 12)), batch_size=args.batch_size)):
    loss = model.training_loss(x)
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
