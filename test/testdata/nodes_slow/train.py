"""Ranks that wait for each other in each step, one of which takes longer: its data come late, or
its forward pass computes more. It trains until somebody stops it."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SLOW = os.environ.get("SLOW")  # "data" or "forward", of one node
gpu = os.environ.get("BACKEND") == "nccl"
device = "cuda" if gpu else "cpu"
WIDE, AGAIN = (4096, 24) if gpu else (256, 3)

torch.set_num_threads(1)
dist.init_process_group(os.environ.get("BACKEND", "gloo"))


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if SLOW == "data":
            time.sleep(0.03)
        return torch.ones(WIDE)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDE, WIDE)
        self.register_buffer("scale", torch.ones(1))  # has DistributedDataParallel wait in its forward

    def forward(self, x):
        with torch.no_grad():
            for _ in range(AGAIN * (12 if SLOW == "forward" else 1)):
                x = self.layer(x.repeat(8, 1))[: len(x)]
        return self.layer(x) * self.scale


model = DistributedDataParallel(Net().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for step, x in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=4 if SLOW == "data" else 256 if gpu else 64)):
    model(x.to(device)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 100 == 0:
        print(f"step {step} after {time.monotonic():.1f} s", flush=True)
