"""A model on all ranks. A step's samples are drawn for all ranks at once and cut
afterwards, so that its loss does not depend on how; what a step needs of memory does."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAMPLES, TOKENS, WIDE, DEEP = 32, 256, 1024, 12  # samples a rank; one takes some 120 MiB until its backward pass

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=SAMPLES)
parser.add_argument("--accum", type=int, default=1)
arguments = parser.parse_args()

torch.manual_seed(0)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(os.environ["BACKEND"])
rank, world = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


model = DistributedDataParallel(nn.Sequential(*(Block() for _ in range(DEEP))).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
print(f"rank {rank} of {world} is rank {os.environ['LOCAL_RANK']} of node {os.environ['GROUP_RANK']}", flush=True)
taken = torch.empty(int(os.environ.get("TAKEN_MIB", 0)) << 20, dtype=torch.uint8, device="cuda")  # of this node alone

for step in range(1, 9):
    draw = torch.Generator().manual_seed(step)
    mine = torch.randn(world, SAMPLES, TOKENS, WIDE, generator=draw)[rank].cuda()
    total = torch.zeros((), device="cuda")
    for part in mine.split(arguments.batch_size):
        loss = (model(part) - part.roll(1, -1)).pow(2).mean() / arguments.accum
        loss.backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item() / world:.6f} (global batch {arguments.batch_size * arguments.accum * world})", flush=True)
dist.destroy_process_group()
