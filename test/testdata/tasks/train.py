"""Joins a process group by the numbers that Slurm gives its tasks; with "alone", none."""

import os
import sys

import torch
import torch.distributed as dist

if sys.argv[1:] != ["alone"]:
    dist.init_process_group("gloo", rank=int(os.environ.get("SLURM_PROCID", 0)), world_size=int(os.environ.get("SLURM_NTASKS", 1)))
    print("rank %d of %d" % (dist.get_rank(), dist.get_world_size()), flush=True)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
