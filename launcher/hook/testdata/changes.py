# A loop that changes parameters, buffers or the learning rate outside of the optimizer's step.
import sys

import torch
import torch.nn.functional as F

kind, accumulate, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 5))
batch = 16 // accumulate
rows = [(torch.randn(6), i % 5) for i in range(16 * steps)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
for i, (x, y) in enumerate(torch.utils.data.DataLoader(rows, batch_size=batch)):
    (F.cross_entropy(model(x), y) / accumulate).backward()
    if kind == "clip each micro batch":
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)
    if kind == "schedule each micro batch":
        schedule.step()
    if kind == "every eighth, data" and i % 8 == 7:
        model[0].weight.data.mul_(0.999)
    if kind == "every fourth" and i % 4 == 3:
        with torch.no_grad():
            model[2].bias.mul_(0.9)
    if kind == "buffer each micro batch":
        model[1].running_mean.zero_()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        if kind == "clip each step":
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-0.1, 0.1)
        if kind == "schedule each step":
            schedule.step()
        if kind == "data each step":
            model[0].weight.data.clamp_(-0.1, 0.1)
