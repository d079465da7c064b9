# Image models: NAME of timm or torchvision, the latter with BatchNorm.
import json
import os
import sys
import time

import torch

import alone  # noqa: F401

name, batch = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
if name.startswith("tv_"):
    import torchvision

    model = torchvision.models.get_model(name[3:], num_classes=100)
else:
    import timm

    model = timm.create_model(name, num_classes=100)
    if os.environ.get("OWN"):
        model.set_grad_checkpointing()
model.cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
losses, seconds = [], []
for step in range(8):
    images, labels = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(100, (batch,), device="cuda")
    begun = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
statistics = sum(float(b.double().sum()) for n, b in model.named_buffers() if "running" in n or "num_batches" in n)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated(), "statistics": statistics}))
