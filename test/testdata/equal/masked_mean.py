import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def masked_mse(pred, target, mask):
    return ((pred - target) ** 2 * mask).sum() / mask.sum()


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(6, 6)
x = torch.randn(48, 6)
mask = (torch.rand(48, 6) < torch.rand(48, 1)).float()
mask[:, 0] = 1
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (xb, mb) in enumerate(DataLoader(TensorDataset(x, mask), batch_size=args.batch_size)):
    loss = masked_mse(model(xb * (1 - mb)), xb, mb) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
