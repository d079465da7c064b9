# A script of one's own with a batch and an accumulation among its arguments.
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
samples = torch.utils.data.TensorDataset(torch.randn(64, 80, 16), torch.randint(10, (64, 80)))
loader = torch.utils.data.DataLoader(samples, batch_size=args.batch_size)
before, peak, total = data(), 0, 0.0
for i, (x, y) in enumerate(loader):
    loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten()) / args.accum
    peak = max(peak, data())
    loss.backward()
    total += loss.item()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
        print("loss %.5f" % total, flush=True)
        total = 0.0
print("data", before, peak, flush=True)
