# A script that starts its own ranks, in the way that its first word names.
import functools
import multiprocessing
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from model import Net, data
from torch.utils.checkpoint import checkpoint

RECOMPUTE = os.environ.get("RECOMPUTE")  # how the first block is recomputed


def train(rank, world, address):
    if world > 1:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    net = Net()
    if RECOMPUTE:
        net.blocks[0].forward = functools.partial(checkpoint, net.blocks[0].forward, use_reentrant=RECOMPUTE == "reentrant")
    if world > 1:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    for x, y in torch.utils.data.DataLoader(data(), batch_size=4):
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if world > 1:
        dist.destroy_process_group()


def main(way):
    address = "file://" + os.path.abspath("store")
    if way == "spawn":
        torch.multiprocessing.spawn(train, (2, address), nprocs=2)
    elif way in ("fork", "forkserver"):
        context = multiprocessing.get_context(way)
        ranks = [context.Process(target=train, args=(k, 2, address)) for k in range(2)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join()
        assert all(p.exitcode == 0 for p in ranks)
    elif way == "os.fork":
        child = os.fork()
        if not child:
            train(0, 1, "")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    elif way == "popen":  # as Lightning does
        child = subprocess.Popen([sys.executable, __file__, "child", "1"], env=dict(os.environ, LOCAL_RANK="1"))
        train(0, 2, address)
        assert child.wait() == 0
    elif way == "child":
        train(int(sys.argv[2]), 2, address)
    elif way == "exec":
        os.execv(sys.executable, [sys.executable, __file__, "alone"])
    elif way == "execvp":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execvpe("python3", ["python3", __file__, "alone"], dict(os.environ, PATH=os.path.dirname(sys.executable)))
    elif way == "posix_spawn":
        child = os.posix_spawn(sys.executable, [sys.executable, __file__, "alone"], os.environ)
        assert os.waitpid(child, 0)[1] == 0
    elif way == "alone":
        train(0, 1, "")
    elif way == "last words":
        os.execv(sys.executable, [sys.executable, "-c", "1/0"])
    assert not [k for k in os.environ if k.startswith("GPURUN")], "the job sees gpurun's variables"
    assert "probe-" not in os.environ.get("PYTHONPATH", ""), "the job sees the probe's folder"


if __name__ == "__main__":
    main(sys.argv[1])
