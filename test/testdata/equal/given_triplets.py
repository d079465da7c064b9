# Each sample is an anchor, a positive and a negative.
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
net = nn.Linear(16, 6)
triplets = TensorDataset(torch.randn(40, 16), torch.randn(40, 16), torch.randn(40, 16))
criterion = nn.TripletMarginLoss(margin=1.0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i, (anchor, positive, negative) in enumerate(DataLoader(triplets, batch_size=args.batch_size)):
    loss = criterion(net(anchor), net(positive), net(negative))
    (loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
