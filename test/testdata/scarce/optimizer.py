# A model of 4 GiB whose optimizer steps all parameters at once: its temporary tensors are the peak.
import json
import time

import torch
from torch import nn

WIDTH, DEPTH, STEPS = 8192, 16, 6

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device=device) for _ in range(DEPTH)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, seconds = [], []
for step in range(STEPS):
    x = torch.randn(8, WIDTH, device=device)
    begun = time.perf_counter()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
    print(f"step {step} loss {losses[-1]:.6f}", flush=True)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[2:]), "peak": torch.cuda.max_memory_allocated()}))
