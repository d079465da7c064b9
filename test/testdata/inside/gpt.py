# A GPT with its constants in the code, and no switch for anything.
import json
import math
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

import alone  # noqa: F401

BATCH, SEQUENCE, WIDTH, HEADS, DEPTH, VOCABULARY, STEPS = 16, 1024, 1024, 16, 16, 8192, 8
if os.environ.get("LONG"):  # many small steps
    BATCH, STEPS = 2, 300


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4 / math.sqrt(DEPTH))
losses, seconds = [], []
for step in range(STEPS):
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), device=device)
    begun = time.perf_counter()
    with torch.autocast(device, torch.bfloat16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
    print(f"step {step} loss {losses[-1]:.6f}", flush=True)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
