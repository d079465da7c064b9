# Data-parallel training, as torchrun starts it. With BACKEND=gloo, ranks may share a GPU. HELD is what rank 0 alone
# holds besides, in GiB.
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import alone  # noqa: F401

dist.init_process_group(os.environ.get("BACKEND") or ("nccl" if torch.cuda.is_available() else "gloo"))
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
WIDTH, DEPTH, BATCH = (1024, 16, 32) if device.type == "cuda" else (32, 4, 4)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 16, dropout=0.1, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x), self.norm1(x), self.norm1(x), need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


held = torch.empty(int(os.environ.get("HELD", "0")) << 30 if rank == 0 else 0, dtype=torch.uint8, device=device)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Sequential(*(Layer() for _ in range(DEPTH))), nn.Linear(WIDTH, WIDTH)).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.manual_seed(rank)
losses, seconds = [], []
for step in range(8):
    x = torch.randn(BATCH, 512, WIDTH, device=device)
    begun = time.perf_counter()
    loss = (model(x) - x.roll(1, 1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
if rank == 0:
    print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
dist.destroy_process_group()
