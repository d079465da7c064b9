# A detection model, whose call returns its losses.
import json
import time

import torch
import torchvision

import alone  # noqa: F401

torch.manual_seed(0)
model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=10).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
losses, seconds = [], []
for step in range(8):
    images = [torch.rand(3, 640, 640, device="cuda") for _ in range(8)]
    targets = [{"boxes": torch.tensor([[10.0, 20.0, 300.0, 400.0], [100.0, 100.0, 500.0, 300.0]], device="cuda"), "labels": torch.tensor([1, 2], device="cuda")} for _ in images]
    begun = time.perf_counter()
    loss = sum(model(images, targets).values())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
