"""Memory and time of a step on a GPU: as written, with activation checkpointing, and in parts of the batch.

    python measure.py FOLDER_OF_THE_HOOK gpt|towers|convnet

Prints a line of JSON for each way."""
import gc
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(sys.argv[1])
from inside import rank, rungs, split

rank.start.update(role="rank", told={"GPURUN_PROBE_ORDERS": os.devnull})
WORDS, STEPS = 50304, 6


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """354 million parameters; the loss is outside."""

    def __init__(self, blocks=24, width=1024, length=1024):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, 16) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        x = self.words(x) + self.places[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Stages(nn.Module):
    """Convolutions of several widths: no two stages are alike."""

    def __init__(self, widths=(96, 128, 192, 256, 384, 512, 768)):
        super().__init__()
        layers, before = [], 3
        for i, width in enumerate(widths):
            layers += [nn.Conv2d(before, width, 3, stride=1 + i % 2, padding=1), nn.GroupNorm(8, width), nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU()]
            before = width
        self.stages, self.head = nn.Sequential(*layers), nn.Linear(before, 256)

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = Stages(), Stages(), nn.Parameter(torch.tensor(2.0))

    def forward(self, x, y):
        return F.normalize(self.a(x), dim=1), F.normalize(self.b(y), dim=1), self.scale.exp()


def words(generator):
    x = torch.randint(WORDS, (16, 1025), generator=generator).cuda()
    return (x[:, :-1],), lambda out: F.cross_entropy(out.flatten(0, 1), x[:, 1:].flatten())


def pairs(generator):
    x, y = (torch.randn(192, 3, 112, 112, generator=generator).cuda() for _ in range(2))

    def loss(out):
        logits, at = out[2] * out[0] @ out[1].T, torch.arange(len(x), device="cuda")
        return (F.cross_entropy(logits, at) + F.cross_entropy(logits.T, at)) / 2

    return (x, y), loss


def images(generator):
    x, y = torch.randn(384, 3, 112, 112, generator=generator).cuda(), torch.randint(256, (384,), generator=generator).cuda()
    return (x,), lambda out: F.cross_entropy(out, y)


JOBS = {"gpt": (GPT, words), "towers": (Towers, pairs), "convnet": (Stages, images)}
WAYS = ({}, {"activation_checkpointing": "full"}, {"forward_parts": 2}, {"forward_parts": 4}, {"forward_parts": 8}, {"activation_checkpointing": "full", "forward_parts": 4})


def measure(make, batch, turn):
    torch.manual_seed(0)
    model, generator = make().cuda(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    losses, seconds, result = [], [], {}
    for step in range(STEPS):
        args, loss_of = batch(generator)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            if not step:
                split.state.clear()
                split.look(model, args, {})
                result = rungs.apply(model, turn)
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            began = time.perf_counter()
            loss = loss_of(model(*args))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        losses.append(round(loss.item(), 5))
    return {"turn": turn, "refused": result.get("refused"), "losses": losses, "seconds": round(min(seconds[2:]), 4), "gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}


if __name__ == "__main__":
    make, batch = JOBS[sys.argv[2]]
    for turn in WAYS:
        try:
            told = measure(make, batch, turn)
        except torch.cuda.OutOfMemoryError as e:
            told = {"turn": turn, "failed": str(e)[:100]}
        print(json.dumps(told), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
