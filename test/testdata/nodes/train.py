"""A small model on all ranks, over gloo. A step's samples are drawn for all ranks at once and cut
afterwards, so that its loss does not depend on how; what a step needs of memory does."""

import argparse
import datetime
import os
import re
import resource

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES = 192  # of all ranks, a step
WIDE, DEEP = 4096, 24  # a sample takes 16 × WIDE × 4 bytes × DEEP until its backward pass, 6 MiB

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--accum", type=int, default=1)
arguments = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ.get("TIMEOUT", 1800))))
rank, world = dist.get_rank(), dist.get_world_size()
layer = torch.nn.Linear(16, 16)
model = DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(f"rank {rank} of {world} is rank {os.environ['LOCAL_RANK']} of node {os.environ['GROUP_RANK']}", flush=True)
if os.environ.get("ROOM_MIB"):  # of this node alone: no more memory than what is taken by now, and so much
    with open("/proc/self/status") as status:
        taken = int(re.search(r"VmData:\s+(\d+) kB", status.read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (taken + (int(os.environ["ROOM_MIB"]) << 20),) * 2)


def loss_of(samples):
    wide = model(samples).repeat(1, WIDE)
    for _ in range(DEEP):
        wide = wide.clamp(-9, 9)
    return wide.pow(2).mean()


for step in range(1, 4):
    draw = torch.Generator().manual_seed(step)
    mine = torch.randn(SAMPLES, 16, generator=draw).chunk(world)[rank]
    total = torch.zeros(())
    for part in mine.split(arguments.batch_size):
        loss = loss_of(part) / arguments.accum
        loss.backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item() / world:.6f} (global batch {arguments.batch_size * arguments.accum * world})", flush=True)
dist.destroy_process_group()
