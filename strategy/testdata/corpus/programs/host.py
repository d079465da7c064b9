"""Fail in the way that the first argument names, without a GPU."""

import os
import resource
import signal
import sys
import time

from starve import starve


def python_memory():
    starve("cpu", leave=1 << 20)
    samples = []
    while True:
        samples.append(bytearray(1 << 20))


def numpy_memory():
    import numpy

    starve("cpu", leave=1 << 20)
    return numpy.zeros((1 << 16, 1 << 14), dtype=numpy.float32).sum()


def tensor_load():
    import torch

    torch.save({"weight": torch.zeros(1 << 26)}, "model.pt")
    starve("cpu", leave=1 << 20)
    return torch.load("model.pt")["weight"].sum()


def fork():
    import subprocess

    ballast = bytearray(6 << 30)
    subprocess.check_output(["true"])
    starve("cpu", leave=1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
    os.fork()
    return len(ballast)


def eat():
    """Grow until somebody ends it, and say so at each step."""
    kept = []
    for step in range(1, 10000):
        kept.append(bytearray(os.urandom(1 << 20)) * 32)
        print(f"step {step} loss {1 / step:.4f}", flush=True)


def loader(shared=False):
    import torch

    class Samples(torch.utils.data.Dataset):
        kept = []

        def __len__(self):
            return 4096

        def __getitem__(self, i):
            if not shared:
                self.kept.append(bytearray(os.urandom(1 << 20)) * 16)
            return torch.zeros(1 << 20)

    for step, batch in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=2)):
        print(f"step {step} loss {batch.mean().item():.4f}", flush=True)


def shm():
    loader(shared=True)


def shm_file_system():
    import torch

    torch.multiprocessing.set_sharing_strategy("file_system")
    loader(shared=True)


def shm_share():
    import torch

    kept = [torch.zeros(1 << 20).share_memory_() for _ in range(100)]
    return len(kept)


def save_torch():
    import torch

    for step in range(1, 100):
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        torch.save({"weight": torch.zeros(1 << 20)}, f"full/checkpoint-{step}.pt")


def save_safetensors():
    import torch
    from safetensors.torch import save_file

    for step in range(1, 100):
        save_file({"weight": torch.zeros(1 << 20)}, f"full/checkpoint-{step}.safetensors")


def save_numpy():
    import numpy

    def save_checkpoint(path):
        numpy.save(path, numpy.zeros(1 << 20))

    for step in range(1, 100):
        save_checkpoint(f"full/checkpoint-{step}.npy")


def write_log():
    with open("full/log.txt", "w") as f:
        while True:
            f.write("x" * 4096)


def listen():
    import torch.distributed as dist

    dist.TCPStore("127.0.0.1", int(os.environ["TAKEN"]), 2, is_master=True)


def init():
    import torch.distributed as dist

    dist.init_process_group("gloo")


def segfault():
    import ctypes

    print("step 1 loss 0.5", flush=True)
    ctypes.string_at(0)


def abort():
    import torch  # noqa: F401

    os.abort()


def bus():
    os.kill(os.getpid(), signal.SIGBUS)


def wait():
    print("step 1 loss 0.5", flush=True)
    open("ready", "w").close()
    time.sleep(60)


def nan_anomaly():
    import torch

    with torch.autograd.detect_anomaly():
        x = torch.zeros(4, requires_grad=True)
        (torch.sqrt(x) * 0).sum().backward()


def multinomial():
    import torch

    return torch.multinomial(torch.full((4, 8), float("nan")), 1)


def normal():
    import torch

    return torch.distributions.Normal(torch.full((4,), float("nan")), 1.0)


def loss_check():
    import math

    for step in range(1, 10):
        loss = 0.1 * 10.0 ** (step * 40) if step < 8 else float("nan")
        print(f"step {step} loss {loss:.4g}", flush=True)
        if not math.isfinite(loss):
            raise ValueError(f"Loss is nan, stopping training at step {step}")


def nan_goes_on():
    for step in range(1, 30):
        print({"loss": float("nan"), "grad_norm": float("nan"), "step": step}, flush=True)


def shape():
    import torch

    return torch.nn.Linear(8, 8)(torch.ones(4, 16))


def backward_twice():
    import torch

    loss = torch.nn.Linear(8, 8)(torch.ones(4, 8)).sum()
    loss.backward()
    loss.backward()


def missing_key():
    import torch

    model = torch.nn.Linear(8, 8)
    model.load_state_dict({"weight": torch.zeros(8, 9)})


def missing_module():
    import a_module_that_nobody_has  # noqa: F401


def missing_file():
    open("data/train.bin", "rb").read()


def arguments():
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.parse_args(["--learning-rate", "1"])


def gives_up():
    sys.exit("no training data found in data/")


def descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    return [open("/dev/null") for _ in range(100)]


def recursion():
    return recursion()


def no_cuda():
    import torch

    return torch.ones(1).cuda()


def accelerate_finder():
    import torch
    from accelerate.utils import find_executable_batch_size

    starve("cpu", leave=64 << 20)

    @find_executable_batch_size(starting_batch_size=64)
    def train(batch_size):
        print(f"batch size {batch_size}", flush=True)
        x = torch.ones(batch_size, 1 << 20)
        for step in range(1, 4):
            print(f"step {step} loss {x.mean().item():.4f}", flush=True)

    train()


def healthy():
    import warnings

    warnings.warn("CUDA initialization: the driver may run out of memory if you use larger batches")
    print("note: if you see CUDA out of memory, reduce --batch-size")
    for step in range(1, 30):
        print(f"step {step} loss {1 / step:.4f}", flush=True)


def thread_dies():
    """A helper thread's exception does not end the job."""
    import threading

    thread = threading.Thread(target=lambda: {}["metrics"])
    thread.start()
    thread.join()
    for step in range(1, 30):
        print(f"step {step} loss {1 / step:.4f}", flush=True)


globals()[sys.argv[1]]()
print("done")
