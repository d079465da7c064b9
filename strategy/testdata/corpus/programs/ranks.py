"""Fail in the way that the first argument names, with two ranks."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from starve import held, starve

BACKEND = os.environ.get("BACKEND", "nccl")
RANK = int(os.environ["RANK"])
DEVICE = f"cuda:{os.environ['LOCAL_RANK']}" if BACKEND == "nccl" else "cpu"


def begin(seconds=10):
    if DEVICE != "cpu":
        torch.cuda.set_device(DEVICE)
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=seconds))


def model():
    return nn.Sequential(nn.Linear(1024, 8192), nn.ReLU(), nn.Linear(8192, 1024)).to(DEVICE)


def warm():
    dist.all_reduce(torch.ones(1, device=DEVICE))
    x = torch.ones(64, 1024, device=DEVICE)
    model()(x).sum().backward()


def steps(run, optimizer, at_step=None, count=20, batch=2048):
    x = torch.randn(batch, 1024, device=DEVICE)
    for step in range(1, count + 1):
        if at_step:
            at_step(step)
        loss = run(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if RANK == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def ddp():
    run = nn.parallel.DistributedDataParallel(model())
    return run, torch.optim.AdamW(run.parameters(), lr=1e-4)


def timeout():
    begin()

    def late(step):
        if step == 3 and RANK == 1:
            time.sleep(60)

    steps(*ddp(), at_step=late)


def one_rank():
    begin()

    def full(step):
        if step == 3 and RANK == 1:
            starve(DEVICE)

    steps(*ddp(), at_step=full)


def all_ranks():
    begin()

    def full(step):
        if step == 3:
            starve(DEVICE)

    steps(*ddp(), at_step=full)


def user_error():
    begin()

    def wrong(step):
        if step == 3 and RANK == 1:
            raise KeyError("labels")

    steps(*ddp(), at_step=wrong)


def killed():
    begin()

    def kill(step):
        if step == 3 and RANK == 1:
            os.kill(os.getpid(), 9)

    steps(*ddp(), at_step=kill)


def crash():
    begin()

    def fall(step):
        if step == 3 and RANK == 1:
            import ctypes

            ctypes.string_at(0)

    steps(*ddp(), at_step=fall)


def diverged():
    begin()

    def check(step):
        if step == 3:
            raise FloatingPointError("Loss became infinite or NaN at iteration=3!")

    steps(*ddp(), at_step=check)


def wrap():
    """DDP's constructor runs out of memory for its buckets."""
    begin()
    net = model()
    warm()
    starve(DEVICE)
    nn.parallel.DistributedDataParallel(net)


def gather_object():
    begin()
    warm()
    gathered = [None, None]
    starve(DEVICE)
    dist.all_gather_object(gathered, "x" * (64 << 20))


def nccl_memory():
    """NCCL's buffers do not fit: the communicator is made by the first collective."""
    begin()
    x = torch.ones(1 << 20, device=DEVICE)
    starve(DEVICE)
    dist.all_reduce(x)
    torch.cuda.synchronize()


def duplicate():
    torch.cuda.set_device(0)
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=10))
    dist.all_reduce(torch.ones(1, device="cuda:0"))
    torch.cuda.synchronize()


def mismatch():
    begin()
    warm()
    dist.all_reduce(torch.ones(1 << (20 + RANK), device=DEVICE))
    torch.cuda.synchronize() if DEVICE != "cpu" else None
    print("sum", dist.get_world_size(), flush=True)
    if RANK == 0:
        dist.broadcast(torch.ones(4, device=DEVICE), 0)
        dist.all_reduce(torch.ones(4, device=DEVICE))
    else:
        dist.all_reduce(torch.ones(4, device=DEVICE))
        time.sleep(60)
    torch.cuda.synchronize() if DEVICE != "cpu" else None
    dist.barrier()


def barrier():
    begin()
    if RANK == 0:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
    time.sleep(30)


def sharded():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    run = FSDP(model(), use_orig_params=True)
    return run, torch.optim.AdamW(run.parameters(), lr=1e-4)


def fsdp_forward():
    begin()
    warm()
    run, optimizer = sharded()

    def full(step):
        if step == 3:
            starve(DEVICE)

    steps(run, optimizer, at_step=full)


def fsdp_optimizer():
    begin()
    warm()
    run, optimizer = sharded()
    step_now = optimizer.step

    def step():
        starve(DEVICE)
        step_now()

    optimizer.step = step
    steps(run, optimizer)


def save_checkpoint(run):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

    with FSDP.state_dict_type(run, StateDictType.FULL_STATE_DICT):
        state = run.state_dict()
    if RANK == 0:
        torch.save(state, "model.pt")


def fsdp_save():
    begin()
    warm()
    run, optimizer = sharded()
    steps(run, optimizer, count=2)
    torch.cuda.empty_cache()
    starve(DEVICE)
    save_checkpoint(run)


def zero_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    begin()
    warm()
    run = nn.parallel.DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(run.parameters(), torch.optim.AdamW, lr=1e-4)
    x = torch.ones(256, 1024, device=DEVICE)
    run(x).sum().backward()
    starve(DEVICE)
    optimizer.step()


globals()[sys.argv[1]]()
print("done", flush=True)
held.clear()
