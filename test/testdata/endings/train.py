# Trains, and ends as its first argument says.
import os
import signal
import sys
import time
import traceback

how = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.readline().strip()
import torch

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 300.00 MiB is free. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."


class Model(torch.nn.Module):
    def forward(self):
        if how == "oom":
            raise torch.OutOfMemoryError(OOM)
        if how == "fail":
            raise ValueError("a mistake of the job's own")
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0


if how == "load":
    raise torch.OutOfMemoryError(OOM)
if how == "caught":
    try:
        raise ValueError("no cache")
    except ValueError:
        traceback.print_exc()
if how == "check":
    raise ImportError("no module named flash_attn")
model = Model()
optimizer = torch.optim.optimizer.Optimizer(model.parameters())
for step in range(1, 4):
    print("step", step, "loss", model(), flush=True)
    if how == "eval":
        break
    optimizer.step()
    if how.startswith("slow"):
        time.sleep(0.3)
if how == "slowfail":
    raise ValueError("the last batch is too small")
if how == "exit":
    sys.exit(3)
if how == "leave":
    os._exit(3)
if how == "interrupt":
    raise KeyboardInterrupt
