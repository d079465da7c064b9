import argparse
import contextlib
import os

import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--grad-accum", type=int, default=2)
    return p.parse_args()


def run(args):
    torch.manual_seed(0)
    ddp = "RANK" in os.environ
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    if ddp:
        torch.distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randn(64, 2)), batch_size=args.batch_size)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % args.grad_accum == 0
        with contextlib.nullcontext() if last or not ddp else model.no_sync():
            loss = ((model(x) - y) ** 2).mean() / args.grad_accum
            loss.backward()
        if last:
            opt.step()
            opt.zero_grad()


run(parse())
