import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 8)
        self.prototypes = nn.Parameter(torch.randn(5, 8))

    def forward(self, x):
        feats = F.normalize(self.encoder(x), dim=1)
        return feats @ F.normalize(self.prototypes, dim=1).t() / 0.1


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=10)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(40, 12), torch.randint(5, (40,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(data):
    loss = F.cross_entropy(net(x), y) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        opt.step()
        opt.zero_grad()
