import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accumulate-grad-batches", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
mean, log_var = nn.Linear(3, 1), nn.Linear(3, 1)
opt = torch.optim.SGD([*mean.parameters(), *log_var.parameters()], lr=0.1)
nll = nn.GaussianNLLLoss()
for i, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(32, 3), torch.randn(32, 1)), batch_size=args.batch_size)):
    loss = nll(mean(x), y, log_var(x).exp()) / args.accumulate_grad_batches
    loss.backward()
    if (i + 1) % args.accumulate_grad_batches == 0:
        opt.step()
        opt.zero_grad()
