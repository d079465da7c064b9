# The weight decay follows from the batch.
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
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01 * args.batch_size)
loader = DataLoader(TensorDataset(torch.randn(48, 6), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    loss = F.cross_entropy(model(x), y)
    (loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
