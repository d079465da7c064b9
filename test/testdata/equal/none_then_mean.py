import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bs", "--batch-size", dest="batch_size", type=int, default=12)
    parser.add_argument("--accum-steps", type=int, default=1)
    return parser


def step_loss(net, x, y):
    per_sample = nn.functional.mse_loss(net(x), y, reduction="none").sum(dim=1)
    return per_sample.mean()


args = build_parser().parse_args()
torch.manual_seed(0)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for i, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(48, 4), torch.randn(48, 3)), batch_size=args.batch_size)):
    loss = step_loss(net, x, y) / args.accum_steps
    loss.backward()
    if (i + 1) % args.accum_steps == 0:
        opt.step()
        opt.zero_grad()
