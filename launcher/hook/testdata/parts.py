# Loops with constants in the script, whose models have no blocks to recompute or do not fit with
# those alone: under a ceiling they train in parts of the batch.
import json
import resource
import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDE, STEPS = 1 << 14, 12


class Encoder(nn.Module):
    """One stage after the other, of one parameter: there are no repeated blocks."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.scales, self.drop = nn.Parameter(torch.linspace(0.9, 1.1, STEPS)), nn.Dropout(dropout)

    def forward(self, x):
        for scale in self.scales:
            x = torch.tanh(self.drop(x) * scale)
        return x.view(len(x), 8, -1).mean(2)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = Encoder(), Encoder(), nn.Parameter(torch.tensor(1.0))

    def forward(self, x, y):
        return F.normalize(self.a(x), dim=1), F.normalize(self.b(y), dim=1), self.scale.exp()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.tanh(torch.tanh(x * self.scale) * self.scale)


class Blocks(nn.Module):
    """Repeated blocks whose inputs alone are too much."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(STEPS))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.view(len(x), 8, -1).mean(2)


def contrast(out, _):
    a, b, scale = out
    # No product of matrices: OpenBLAS waits for ever for memory of its own.
    logits, at = scale * (a[:, None] * b).sum(2), torch.arange(len(a))
    return (F.cross_entropy(logits, at) + F.cross_entropy(logits.T, at)) / 2


def near(out, i):
    return (out - 0.1 * i).square().mean()


CASES = {
    "contrastive": (Towers, 2, contrast), "encoder": (Encoder, 1, near), "dropout": (lambda: Encoder(0.1), 1, near), "blocks": (Blocks, 1, near),
    "evaluation": (Encoder, 1, near), "evaluation first": (Encoder, 1, near),
}


def limit(mib):
    """Leaves the process so much more than it has."""
    with open("/proc/self/status") as file:
        data = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + (mib << 20), resource.RLIM_INFINITY))


def batches(inputs):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(64, WIDE, generator=generator) for _ in range(inputs)]


def evaluate(net, given, loss_of):
    net.eval()
    with torch.no_grad():
        losses = [loss_of(net(*given), i).item() for i in range(2)]
    net.train()
    return losses


def main(name, mib):
    make, inputs, loss_of = CASES[name]
    torch.manual_seed(0)
    net, given = make(), batches(inputs)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
    if mib:
        limit(mib)
    if name == "evaluation first":
        losses += evaluate(net, given, loss_of)
    for i in range(3):
        rows = 2 if "evaluation" in name or i == 0 else 64
        loss = loss_of(net(*[x[:rows] for x in given]), i)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if name == "evaluation":
        losses += evaluate(net, given, loss_of)
    print(json.dumps({"losses": losses, "weights": [v for p in net.parameters() for v in p.flatten().tolist()]}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]))
