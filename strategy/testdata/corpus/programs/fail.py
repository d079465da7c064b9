"""Fail in the way that the first argument names, on one GPU."""

import sys
import time

import torch
from torch import nn

from starve import held, starve


def cublas():
    x = torch.ones(256, 256, device="cuda")
    starve("cuda")
    return x @ x


def cublas_half():
    x = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    starve("cuda")
    return torch.mm(x, x, out=y)


def cudnn():
    x = torch.ones(8, 3, 64, 64, device="cuda")
    conv = nn.Conv2d(3, 8, 3).cuda()
    starve("cuda")
    return conv(x)


def cufft():
    x = torch.ones(1 << 20, device="cuda")
    starve("cuda")
    return torch.fft.rfft(x[:1000003 % (1 << 20)])


def cusolver():
    x = torch.eye(256, device="cuda")
    starve("cuda")
    return torch.linalg.eigh(x)


def impossible():
    scores = torch.einsum("id,jd->ij", *(torch.ones(1 << 19, 8, device="cuda") for _ in range(2)))
    return scores.softmax(-1)


def segments():
    torch.cuda.set_per_process_memory_fraction(0.05)
    halves = []
    try:
        while True:
            halves.append((torch.empty(9 << 20, dtype=torch.uint8, device="cuda"), torch.empty(9 << 20, dtype=torch.uint8, device="cuda")))
    except torch.OutOfMemoryError:
        pass
    halves = [a for a, _ in halves]
    return torch.empty(1 << 30, dtype=torch.uint8, device="cuda")


def pinned():
    return torch.empty(1 << 42, dtype=torch.uint8, pin_memory=True)


def graph():
    torch.cuda.set_per_process_memory_fraction(0.1)
    x = torch.ones(1 << 28, device="cuda")
    g = torch.cuda.CUDAGraph()
    outputs = []
    with torch.cuda.graph(g):
        for _ in range(3):
            outputs.append(x * 2)
    g.replay()
    starve("cuda")
    return x + 1


def data_parallel():
    model = nn.DataParallel(nn.Sequential(nn.Linear(1024, 8192), nn.ReLU(), nn.Linear(8192, 8)).cuda())
    model(torch.ones(64, 1024, device="cuda"))
    torch.cuda.synchronize()
    starve("cuda:1")
    model(torch.ones(8192, 1024, device="cuda"))


def attention():
    q = torch.ones(8, 16, 32768, 64, device="cuda", dtype=torch.bfloat16)
    scores = q @ q.transpose(-1, -2) / 8
    return scores.softmax(-1) @ q


def device_assert():
    embedding = nn.Embedding(1000, 64).cuda()
    tokens = torch.randint(0, 1200, (8, 128), device="cuda")
    loss = embedding(tokens).sum()
    loss.backward()
    print("loss", loss.item())


def label_assert():
    loss = nn.functional.cross_entropy(torch.randn(64, 10, device="cuda", requires_grad=True), torch.full((64,), 10, device="cuda"))
    print("loss", loss.item())


def illegal():
    import triton
    import triton.language as tl

    @triton.jit
    def scatter(out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i.to(tl.int64) * n, i)

    out = torch.zeros(1024, dtype=torch.int32, device="cuda")
    scatter[(1024,)](out, 1 << 30, BLOCK=128)
    print("sum", out.sum().item())


def triton_resources():
    import triton
    import triton.language as tl

    @triton.jit
    def product(a, b, c, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        x = tl.load(a + i[:, None] * BLOCK + i[None, :])
        y = tl.load(b + i[:, None] * BLOCK + i[None, :])
        tl.store(c + i[:, None] * BLOCK + i[None, :], tl.dot(x, y))

    a = torch.ones(256, 256, device="cuda")
    product[(1,)](a, a, torch.empty_like(a), BLOCK=256)
    torch.cuda.synchronize()


def numba_memory():
    from numba import cuda as ncuda
    import numpy

    kept = []
    while True:
        kept.append(ncuda.device_array(1 << 32, dtype=numpy.float64))


def cupy_memory():
    import cupy

    kept = []
    while True:
        kept.append(cupy.ones((1 << 31,), dtype=cupy.float32))


def cupy_limit():
    import cupy

    cupy.get_default_memory_pool().set_limit(size=1 << 30)
    x = cupy.ones((1 << 27,), dtype=cupy.float32)
    return x @ x + (x * 2).sum() + cupy.concatenate([x, x]).sum()


def jax_memory():
    import jax
    import jax.numpy as jnp

    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    w = jnp.ones((8192, 8192))
    x = jnp.ones((1 << 22, 8192))
    print("grad", jax.grad(loss)(w, x).sum())


def jax_two():
    import jax.numpy as jnp

    kept = []
    for step in range(100):
        kept.append(jnp.ones((1 << 32,), dtype=jnp.float32).block_until_ready())
        print("step", step)


def nan_anomaly():
    with torch.autograd.detect_anomaly():
        x = torch.zeros(4, device="cuda", requires_grad=True)
        (torch.sqrt(x) * 0).sum().backward()


def multinomial():
    return torch.multinomial(torch.full((4, 8), float("nan"), device="cuda"), 1).cpu()


def no_gpu():
    return torch.ones(1).cuda()


def finder():
    from accelerate.utils import find_executable_batch_size

    held_before = len(held)
    torch.cuda.set_per_process_memory_fraction(0.02)

    @find_executable_batch_size(starting_batch_size=1 << 16)
    def train(batch_size):
        print("batch size", batch_size)
        x = torch.ones(batch_size, 1 << 15, device="cuda")
        for step in range(3):
            print("step", step, "loss", x.mean().item())
        assert held_before == len(held)

    train()


def finder_in_vain():
    from accelerate.utils import find_executable_batch_size

    starve("cuda")

    @find_executable_batch_size(starting_batch_size=64)
    def train(batch_size):
        torch.ones(batch_size, 1 << 24, device="cuda")

    train()


def hold():
    """Hold most of the card until killed."""
    if sys.argv[2] == "all":
        starve("cuda")
    else:
        held.append(torch.empty(int(sys.argv[2]) << 30, dtype=torch.uint8, device="cuda"))
    open("ready", "w").close()
    time.sleep(300)


globals()[sys.argv[1]]()
torch.cuda.synchronize()
print("done")
