"""A small GPT in plain PyTorch, as one file: the sequences grow longer while it trains.

Each step's batch depends on the step alone, so that a resumed run sees what an
uninterrupted one would have seen.
"""

import argparse
import math
import os
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, block_size, layers, width, recompute):
        super().__init__()
        self.recompute = recompute
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def batch(step, samples, length):
    """Sequences that count up in steps of one to four, and what follows each token."""
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(64, (samples, 1), generator=generator)
    strides = torch.randint(1, 5, (samples, 1), generator=generator)
    tokens = (starts + strides * torch.arange(length + 1)) % 64
    return tokens[:, :-1], tokens[:, 1:]


def save(path, step, model, optimizer):
    part = path.with_suffix(".tmp")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part)
    os.replace(part, path)


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--recompute", choices=["on", "off"], default="off")
    p.add_argument("--steps", type=int, default=24)
    p.add_argument("--save-every", type=int, default=6)
    p.add_argument("--short", type=int, default=64)
    p.add_argument("--long", type=int, default=1024)
    p.add_argument("--long-after", type=int, default=14)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--vocabulary", type=int, default=4096)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    p.add_argument("--resume", type=pathlib.Path)
    return p.parse_args()


def main():
    a = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = GPT(a.vocabulary, a.long, a.layers, a.width, a.recompute == "on").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr)
    first = 1
    if a.resume:
        state = torch.load(a.resume, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
        print(f"resumed from {a.resume} at step {first}", flush=True)
    a.out.mkdir(exist_ok=True)
    print(f"micro batch {a.batch_size}, accumulation {a.accum}, recompute {a.recompute}", flush=True)
    for step in range(first, a.steps + 1):
        tokens, targets = batch(step, a.batch_size * a.accum, a.short if step <= a.long_after else a.long)
        mean = 0.0
        for x, y in zip(tokens.split(a.batch_size), targets.split(a.batch_size)):
            loss = model(x.to(device), y.to(device)) / a.accum
            loss.backward()
            mean += loss.item()
        assert math.isfinite(mean)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step} loss {mean:.6f}", flush=True)
        if step % a.save_every == 0:
            save(a.out / f"ckpt-{step}.pt", step, model, optimizer)


if __name__ == "__main__":
    main()
