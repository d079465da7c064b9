# A model whose weights, gradients and optimizer states are nearly all that it needs.
import argparse

import torch
import torch.nn.functional as F
from torch import nn


def data():
    """Gives the process's data in MiB, which a ceiling on the CPU is of."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmData")) // 1024


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(0)
net = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(20)), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
samples = torch.utils.data.TensorDataset(torch.randn(16, 1024), torch.randint(10, (16,)))
before = data()
for i, (x, y) in enumerate(torch.utils.data.DataLoader(samples, batch_size=args.batch_size)):
    loss = F.cross_entropy(net(x), y) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
        print("loss %.5f" % loss.item(), flush=True)
print("data", before, data(), flush=True)
