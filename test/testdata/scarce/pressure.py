# A GPT whose batches have another length in each step: near its ceiling the allocator has to free the
# blocks of other lengths, and to retry.
import json
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCH, WIDTH, HEADS, DEPTH, VOCABULARY, STEPS = 16, 1024, 16, 12, 8192, 60


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
lengths = random.Random(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, seconds = [], []
for step in range(STEPS):
    ids = torch.randint(VOCABULARY, (BATCH, lengths.randint(700, 1024)), device=device)
    begun = time.perf_counter()
    with torch.autocast(device, torch.bfloat16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
stats = torch.cuda.memory_stats() if device == "cuda" else {}
print("RESULT", json.dumps({"losses": losses, "seconds": sorted(seconds[30:])[len(seconds[30:]) // 2], "peak": torch.cuda.max_memory_allocated(), "retries": stats.get("num_alloc_retries", 0)}))
