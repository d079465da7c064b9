# Trains with an optimizer whose states do not fit under a ceiling, in one of several ways; the first word names it, the
# second is how many MiB more than it holds the process may have from then on, 0 for all.
import json
import os
import sys

import torch
from loops import limit
from torch import nn

WIDE, MIB = 1024, int(sys.argv[2])


def ceiling():
    if MIB:
        limit(MIB)


def net():
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(WIDE, WIDE, bias=False), nn.Tanh())))


def step(model, optimizer, rows=1, before=lambda: None):
    loss = model(torch.linspace(-1, 1, rows * WIDE).reshape(rows, WIDE)).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    before()
    optimizer.step()
    return loss.item()


def tell(model, optimizer, losses):
    states = [v.double().sum().item() for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
    print(json.dumps({"losses": losses, "weights": [p.detach().double().sum().item() for p in model.parameters()], "states": states}))


def first():
    """The states do not fit, which the first step makes."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    tell(model, optimizer, [step(model, optimizer, before=ceiling if i == 0 else lambda: None) for i in range(4)])


def later():
    """A frozen part is trained from the third step on: its states do not fit."""
    model = net()
    model[:8].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    losses = []
    for i in range(5):
        model[:8].requires_grad_(i >= 3)
        losses.append(step(model, optimizer, before=ceiling if i == 3 else lambda: None))
    tell(model, optimizer, losses)


def temporary():
    """The temporary tensors of a later step do not fit beside what the job has come to hold."""
    model, held = net(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    losses = []
    for i in range(5):
        losses.append(step(model, optimizer, before=ceiling if i == 0 else lambda: None))
        if i == 2 and MIB:
            held.append(torch.ones((MIB - 90) << 18))
    tell(model, optimizer, losses)


def forward():
    """The states hold what the activations of a larger batch need."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = [step(model, optimizer) for _ in range(2)]
    ceiling()
    losses += [step(model, optimizer, rows) for rows in (2048, 1, 2048)]
    tell(model, optimizer, losses)


def resumed():
    """The states of a checkpoint do not fit."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path = os.environ["STATES"]
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        del saved
    losses = [step(model, optimizer) for _ in range(2)]
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    tell(model, optimizer, losses)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
