import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=2)
args = parser.parse_args()
torch.manual_seed(0)
tower = nn.Linear(9, 5)
loss_fn = nn.CosineEmbeddingLoss(margin=0.1)
pairs = TensorDataset(torch.randn(48, 9), torch.randn(48, 9), torch.randint(2, (48,)) * 2 - 1)
optimizer = torch.optim.SGD(tower.parameters(), lr=0.1)
accumulated = 0
for left, right, same in DataLoader(pairs, batch_size=args.batch_size):
    loss = loss_fn(tower(left), tower(right), same) / args.accum
    loss.backward()
    accumulated += 1
    if accumulated == args.accum:
        optimizer.step()
        optimizer.zero_grad()
        accumulated = 0
