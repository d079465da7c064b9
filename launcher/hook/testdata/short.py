# Trains with an optimizer that steps all parameters at once, under a ceiling that leaves so many MiB
# for its first step: states of 64 MiB, and 32 more for a moment.
import json
import sys

import torch
from loops import limit

torch.set_num_threads(1)
net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(8)))
with torch.no_grad():
    for i, p in enumerate(net.parameters()):
        p.copy_(torch.eye(1024) + 0.01 * (i + 1) / 1024)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, foreach=sys.argv[2] == "all")
x = torch.linspace(-1, 1, 1024).reshape(1, 1024)
losses = []
for step in range(3):
    loss = net(x).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if step == 0 and sys.argv[1] != "0":
        limit(int(sys.argv[1]))
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"losses": losses, "sums": [p.detach().double().sum().item() for p in net.parameters()], "foreach": [g["foreach"] for g in optimizer.param_groups]}))
