import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def objective(e, ids, margin=0.3):
    distance = torch.cdist(e, e)
    same = ids[:, None] == ids[None, :]
    furthest = distance.masked_fill(~same, 0).max(1).values
    nearest = distance.masked_fill(same, 1e6).min(1).values
    return F.relu(furthest - nearest + margin).mean()


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
embed = nn.Linear(10, 6)
optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    loss = objective(embed(x), y) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
