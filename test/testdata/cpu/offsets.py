# A loop over offsets, in which the remainder of the sample's number, not of the batch's,
# decides about the step: with an accumulation of two it never comes.
import argparse

import torch
import torch.nn.functional as F
from torch import nn


def data():
    """Gives the process's data in MiB, which a ceiling on the CPU is of."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmData")) // 1024


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(0)
net = nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(16, 1024), nn.GELU(), nn.Linear(1024, 16))), nn.Linear(16, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(64, 80, 16), torch.randint(10, (64, 80))
before, peak = data(), 0
for i in range(0, len(x), args.batch_size):
    part = slice(i, i + args.batch_size)
    loss = F.cross_entropy(net(x[part]).flatten(0, 1), y[part].flatten()) / args.accum
    peak = max(peak, data())
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
        print("step", i, flush=True)
print("data", before, peak, flush=True)
