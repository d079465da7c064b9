# One length, labels of -100 where nothing is to be predicted: the default of CrossEntropyLoss.
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
ids = torch.randint(30, (48, 12))
labels = ids.masked_fill(torch.rand(48, 12) < torch.rand(48, 1), -100)
labels[:, 0] = ids[:, 0]
model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for i, (x, y) in enumerate(DataLoader(TensorDataset(ids, labels), batch_size=args.batch_size)):
    loss = criterion(model(x).view(-1, 30), y.view(-1)) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
