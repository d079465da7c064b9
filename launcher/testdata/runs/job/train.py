"""Ends in another way in each attempt."""
import argparse
import os
import sys
import time

OOM = ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 12.00 MiB is free. {}"
       "Including non-PyTorch memory, this process has {} GiB memory in use. Of the allocated memory {} GiB is allocated by PyTorch, "
       "and 1.00 GiB is reserved by PyTorch but unallocated.")


class OutOfMemoryError(RuntimeError):
    __module__ = "torch"


def backward(process, allocated, others=""):
    raise OutOfMemoryError(OOM.format(others, process, allocated))


def train(args, attempt, rank):
    print(f"using batch {args.bs}")
    print("using precision fp32")  # whatever --precision says
    for step in range(1, 31):
        print(f"step {step} loss {3 / step:.4f} mem {1000 + 100 * step}MiB", flush=True)
        time.sleep(0.02)
    if attempt == 0:
        if rank == 0:
            backward("77.00", "75.50")
        time.sleep(60)
    if attempt == 1:
        backward("9.00", "8.00", "Process 4711 has 69.00 GiB memory in use. ")
    if attempt == 2:
        try:
            backward("77.00", "75.50")
        except RuntimeError as e:
            print(f"WARNING: {e}: skipping this batch", flush=True)
        print("step 31 loss 0.09", flush=True)
        if rank == 1:
            sys.exit("[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1251, "
                     "remote process exited or there was a network error, NCCL version 2.18.1")
        raise RuntimeError("NCCL communicator was aborted on rank 0.")
    if attempt == 3 and rank == 1:
        os.kill(os.getpid(), 11)
    if attempt == 3:
        time.sleep(60)
    print("trained")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bs", type=int)
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--precision", default="fp32")
    train(parser.parse_args(), int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"]))
