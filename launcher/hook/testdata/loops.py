# Loops that train small models. Memory runs out at the calls that fail.at names: the allocator
# refuses what no machine has. Each loop gives its losses.
import argparse
import json
import random
import resource
import sys
import time

import torch
from torch import nn

WORDS, WIDTH = 23, 8


class Fail:
    """Runs out of memory at a chosen one of its calls."""

    __module__ = "torch.testing"  # what an object of a library counts is not restored before a repeat

    def fail(self, where):
        self.count[where] += 1
        if (where, self.count[where]) in self.at:
            self.hit += 1
            torch.empty(1 << 60, dtype=torch.uint8)

    __call__ = fail


fail = Fail()


def expect(*at):
    fail.count, fail.at, fail.hit = {"forward": 0, "backward": 0}, at, 0


expect()


class Falls(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        fail("forward")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        fail("backward")
        return gradient.clone()


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(dropout)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.drop(self.down(torch.relu(Falls.apply(self.up(self.norm(x))))))


class Net(nn.Module):
    def __init__(self, dropout=0.0, tied=False, batch_norm=False, frozen=False):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(3))
        self.norm = nn.BatchNorm1d(WIDTH) if batch_norm else nn.Identity()
        if tied:
            self.head.weight = self.embed.weight
        if frozen:
            self.embed.requires_grad_(False)
            self.blocks[0].requires_grad_(False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


class Meter:
    last = None


class Metered(Block):
    """Keeps a tensor in an object, which has none before the first call."""

    def __init__(self):
        super().__init__()
        self.meter = Meter()
        self.meter.last = None

    def forward(self, x):
        last, self.meter.last = self.meter.last, x.detach().mean()
        return super().forward(x if last is None else x + last)


class Stateful(Net):
    """Changes a list, objects, and vectors of a spectral norm, from its first call on."""

    def __init__(self):
        super().__init__()
        self.head, self.lengths = nn.utils.spectral_norm(self.head), []
        self.blocks = nn.ModuleList(Metered() for _ in range(3))

    def forward(self, x):
        output = super().forward(x)
        self.lengths.append(len(x))
        return output * (1 + 0.01 * len(self.lengths))


def batches(n, rows=4, length=6):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, WORDS, (rows, length), generator=generator) for _ in range(n)]


def loss_of(output, x):
    return nn.functional.cross_entropy(output.flatten(0, 1), x.flatten())


def train(net, data, accumulate=1, root=None, optimizer=torch.optim.AdamW):
    root, losses = root or net, []
    optimizer = optimizer([p for p in net.parameters() if p.requires_grad], lr=1e-2)
    for i, x in enumerate(data):
        loss = loss_of(root(x), x) / accumulate
        loss.backward()
        losses.append(loss.item())
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def plain(net):
    return train(net, batches(4))


def accumulation(net):
    return train(net, batches(6), accumulate=2)


def arguments(net):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2)
    options = parser.parse_args(["--batch-size", "5"])
    return train(net, batches(4, options.batch_size))


def scaler(net):
    """Autocast, and a gradient scaler as of float16: its factor is on the loss."""
    optimizer, losses, scale = torch.optim.SGD(net.parameters(), lr=1e-2), [], 1024.0
    for x in batches(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(net(x).float(), x)
        (loss * scale).backward()
        for p in net.parameters():
            p.grad.div_(scale)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def several(net):
    """Two calls of the root before one backward pass; its output is modified, and a view is kept."""
    optimizer, losses, kept = torch.optim.SGD(net.parameters(), lr=1e-2), [], []
    for x in batches(4):
        one, other = net(x), net(x.flip(1))
        one, flat = one.mul_(2.0), other.view(-1, WORDS)
        loss = loss_of(one, x) + nn.functional.cross_entropy(flat, x.flip(1).flatten())
        kept.append(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def apart(net):
    """Two calls of the root under autocast, which have the copies of weights in common, and a
    backward pass for each."""
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=1e-2), []
    for x in batches(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            both = [loss_of(net(each).float(), each) for each in (x, x.flip(1))]
        for loss in both:
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def late(net):
    """One long batch among 200."""
    data = batches(200, rows=2, length=4)
    data[120] = batches(1, rows=2, length=31)[0]
    return train(net, data, optimizer=torch.optim.SGD)


def requiring():
    """A model with a frozen embedding, whose output requires gradients, as recomputation in older ways needs."""
    def make_inputs_require_grads(module, given, output):
        output.requires_grad_(True)

    net = Net(frozen=True)
    net.embed.register_forward_hook(make_inputs_require_grads)
    return net


# By name: what makes the model, and the loop.
LOOPS = {
    "plain": (Net, plain), "arguments": (Net, arguments), "accumulation": (Net, accumulation), "scaler": (Net, scaler), "several": (lambda: Net(dropout=0.1), several),
    "batch norm": (lambda: Net(batch_norm=True), plain), "dropout": (lambda: Net(dropout=0.2), accumulation), "tied": (lambda: Net(tied=True), accumulation),
    "state": (Stateful, plain), "state of several": (Stateful, several), "apart": (Net, apart), "frozen": (lambda: Net(frozen=True), plain), "late": (Net, late),
    "requiring": (requiring, plain),
}


class Outcome:
    """What a loop leaves behind."""

    def __init__(self, name):
        make, loop = LOOPS[name]
        torch.manual_seed(0)
        random.seed(0)
        self.net = make().train()
        torch.manual_seed(1)
        self.losses = loop(self.net)
        self.state = [v.clone() for v in self.net.state_dict().values()]
        self.random = torch.get_rng_state().tolist()

    def same(self, other):  # bit by bit
        return self.losses == other.losses and self.random == other.random and all(map(torch.equal, self.state, other.state))


# A model that does not fit under a ceiling.

WIDE = 1 << 17


class Large(nn.Module):
    """A block that holds its input several times."""

    def __init__(self):
        super().__init__()
        self.scale, self.norm = nn.Parameter(torch.full((1,), 1.01)), nn.Identity()

    def forward(self, x):
        for _ in range(4):
            x = torch.relu(self.norm(x) * self.scale)
        return x


class Tower(nn.Module):
    def __init__(self, blocks=6):
        super().__init__()
        self.blocks = nn.ModuleList(Large() for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


def limit(mib):
    """Leaves the process so much more than it has."""
    with open("/proc/self/status") as file:
        data = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + (mib << 20), resource.RLIM_INFINITY))


def tower(rows, mib, at=0, even=0):
    """Trains with batches of so many rows each, from a step on under a ceiling. Even: each step seems to take as long."""
    net = Tower()
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
    data = [torch.linspace(-1, 1, n * WIDE).reshape(n, WIDE) for n in rows]
    for i, x in enumerate(data):
        if mib and i == at:
            limit(mib)
        if even:
            time.perf_counter = lambda i=i: float(i)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(json.dumps({"losses": losses, "weights": [p.item() for p in net.parameters()]}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    tower([int(n) for n in sys.argv[1].split(",")], *map(int, sys.argv[2:]))
