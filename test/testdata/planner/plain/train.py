"""A GPT in plain PyTorch, with an argument for everything. TINY=1 makes it small enough for a CPU."""

import argparse
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import alone  # noqa: F401


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.recompute = a.ckpt == "on"
        self.tokens, self.places = nn.Embedding(a.vocabulary, a.width), nn.Embedding(a.sequence, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.width // a.head) for _ in range(a.layers))
        self.norm, self.head = nn.LayerNorm(a.width), nn.Linear(a.width, a.vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--micro", type=int, default=16)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--ckpt", choices=["on", "off"], default="off")
    p.add_argument("--amp", choices=["on", "off"], default="on")
    p.add_argument("--layers", type=int, default=20)
    p.add_argument("--width", type=int, default=1280)
    p.add_argument("--head", type=int, default=64)
    p.add_argument("--sequence", type=int, default=1024)
    p.add_argument("--vocabulary", type=int, default=16384)
    p.add_argument("--steps", type=int, default=12)
    a = p.parse_args()
    if os.environ.get("TINY"):
        a.layers, a.width, a.head, a.sequence, a.vocabulary, a.steps = 2, 64, 16, 32, 128, 4
    return a


def main():
    a = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = GPT(a).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for step in range(a.steps):
        begun = time.perf_counter()
        batch = torch.randint(a.vocabulary, (a.micro * a.accum, a.sequence + 1))
        mean = 0.0
        for ids in batch.split(a.micro):
            ids = ids.to(device)
            with torch.autocast(device, torch.bfloat16, enabled=a.amp == "on"):
                loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) / a.accum
            loss.backward()
            mean += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
        print(f"step {step} loss {mean:.6f}", flush=True)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    speed = a.micro * a.accum / statistics.median(seconds[2:])
    print("RESULT", json.dumps({"peak": peak, "samples_per_second": speed}), flush=True)


if __name__ == "__main__":
    main()
