"""A job that fills its limit in the forward, all but less than a thread's usual stack. It prints how often its data set
was asked for its length.

Usage: asked.py [full]
"""
import resource
import sys

import torch
from torch import nn

MIB, LEFT = 1 << 20, 7


class Samples(torch.utils.data.Dataset):
    asked = 0

    def __len__(self):
        Samples.asked += 1
        return 64

    def __getitem__(self, i):
        return torch.arange(16.0) * i, i % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.inner(x)
        kept = []  # so much for each row
        for _ in x:  # the fourth fails, and leaves 1 MiB
            kept.append(torch.ones(MIB // 2))
        return self.outer(x)


def data():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmData")) << 10


def main(full):
    torch.manual_seed(0)
    net, loader = Net(), torch.utils.data.DataLoader(Samples(), batch_size=16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        for i, (x, y) in enumerate(loader):
            if full and i == 1:
                limit = data() + LEFT * MIB
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        print("asked", Samples.asked, flush=True)


main(sys.argv[1:] == ["full"])
