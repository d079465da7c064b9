# A model whose logits are most of its memory. The loss is the job's own: OWN=1 computes it without
# cross_entropy.
import json
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCH, SEQUENCE, WIDTH, VOCABULARY, STEPS = 16, 1024, 512, 50304, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(Block() for _ in range(8))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(logits, targets):
    if os.environ.get("OWN"):
        return -logits.float().log_softmax(-1).gather(-1, targets[:, None]).mean()
    return F.cross_entropy(logits, targets)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Words().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, seconds = [], []
for step in range(STEPS):
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), device=device)
    begun = time.perf_counter()
    with torch.autocast(device, torch.bfloat16):
        loss = loss_of(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
    print(f"step {step} loss {losses[-1]:.6f}", flush=True)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "peak": torch.cuda.max_memory_allocated()}))
