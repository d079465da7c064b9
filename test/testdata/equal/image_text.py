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
image, text = nn.Linear(10, 6), nn.Linear(8, 6)
optimizer = torch.optim.SGD([*image.parameters(), *text.parameters()], lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 8)), batch_size=args.batch_size)
for i, (x, t) in enumerate(loader):
    a = F.normalize(image(x), dim=-1)
    b = F.normalize(text(t), dim=-1)
    logits = a @ b.T / 0.07
    labels = torch.arange(len(a))
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    (loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
