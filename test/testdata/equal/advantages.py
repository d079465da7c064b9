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
policy = nn.Linear(10, 4)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,)), torch.randn(48)), batch_size=args.batch_size)
for i, (x, y, r) in enumerate(loader):
    logp = policy(x).log_softmax(-1).gather(1, y[:, None]).squeeze(1)
    advantage = (r - r.mean()) / (r.std() + 1e-8)
    loss = -(logp * advantage).mean() / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
