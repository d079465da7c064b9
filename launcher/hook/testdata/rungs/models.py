"""Models such as people write, small enough for a CPU."""
import collections
import random

import numpy
import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, LENGTH = 61, 32, 48


class Attention(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = dropout
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)))

    def forward(self, x):
        q, k, v = self.qkv(x).split(WIDTH, dim=-1)
        scores = (q @ k.transpose(-2, -1)) / WIDTH**0.5
        scores = scores.masked_fill(self.mask[: x.shape[1], : x.shape[1]] == 0, float("-inf")).softmax(-1)
        return self.out(F.dropout(scores, self.dropout, self.training) @ v)


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(dropout)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A plain loop over blocks, without a switch."""

    def __init__(self, blocks=4, dropout=0.0, tied=False, block=Block):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(WORDS, WIDTH),
            "drop": nn.Dropout(dropout),
            "h": nn.ModuleList([block(dropout) for _ in range(blocks)]),
        })
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.transformer.wte.weight

    def forward(self, idx, targets=None):
        x = self.transformer.drop(self.transformer.wte(idx))
        for block in self.transformer.h:
            x = block(x)
        logits = self.head(x)
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


class OneBlock(nn.Module):
    """The same block, called again and again."""

    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.h = nn.ModuleList([Block(0.1)] * 3)

    def forward(self, idx):
        x = self.wte(idx)
        for block in self.h:
            x = block(x)
        return self.head(x)


class Cross(nn.Module):
    """A decoder's block, with a second input by name, a flag and a tuple for an output."""

    def __init__(self, dropout):
        super().__init__()
        self.own, self.memory = Block(dropout), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, *, memory=None, scale=1.0, return_all=False):
        x = self.own(x) + scale * self.memory(memory).mean(1, keepdim=True)
        return (x, x.detach().mean()) if return_all else (x,)


class EncoderDecoder(nn.Module):
    """Two lists of different lengths and classes."""

    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.encoder = nn.ModuleList([Block(0.1) for _ in range(3)])
        self.decoder = nn.ModuleList([Cross(0.1) for _ in range(2)])

    def forward(self, idx):
        memory = self.wte(idx)
        for block in self.encoder:
            memory = block(memory)
        x = self.wte(idx.flip(1))
        for block in self.decoder:
            x = block(x, memory=memory, scale=0.5, return_all=True)[0]
        return self.head(x)


class Residual(nn.Module):
    """A block of a convolutional net, with statistics and ReLUs that write to their input."""

    def __init__(self, width, norm):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x))))))


class PreActivation(nn.Module):
    """A block that writes to its own input, which belongs to nobody else."""

    def __init__(self, width, norm):
        super().__init__()
        self.norm, self.conv = norm(width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        x.mul_(1.5)
        return self.norm(self.conv(F.relu(x))) + 0.0


class ConvNet(nn.Module):
    def __init__(self, norm=nn.BatchNorm2d, block=Residual, frozen=False):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = nn.Sequential(block(8, norm), block(8, norm))
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.layer2 = nn.Sequential(block(16, norm), block(16, norm), block(16, norm))
        self.head = nn.Linear(16, 10)
        self.frozen = frozen

    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.layer1[0].norm1.eval()
        return self

    def forward(self, x):
        return self.head(self.layer2(self.down(self.layer1(self.stem(x) + 0.0))).mean((2, 3)))


class Stage(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(0.1) for _ in range(depth)])
        self.downsample = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.downsample(x)


class Swin(nn.Module):
    """Stages in a list, blocks in the stages; the last stage has one."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 10)
        self.layers = nn.Sequential(Stage(2), Stage(3), Stage(1))

    def forward(self, x):
        return self.head(self.layers(self.embed(x)).mean(1))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)

    def forward(self, x):
        return (self.key(x) @ self.key(x).transpose(-2, -1)).softmax(-1) @ self.value(x)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head() for _ in range(4)])

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], -1)


class HeadBlock(nn.Module):
    """A block that has a list in it, and is no stage."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.heads = Heads()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.heads(x)
        return x + self.mlp(x)


class Columns(nn.Module):
    """Rows of an attention and a net, each row a list without a forward."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 10)
        def net():
            return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.layers = nn.ModuleList([nn.ModuleList([Attention(0.1), net()]) for _ in range(3)])

    def forward(self, x):
        x = self.embed(x)
        for attention, net in self.layers:
            x = attention(x) + x
            x = net(x) + x
        return self.head(x.mean(1))


class UNet(nn.Module):
    """Blocks that are attributes, in no list."""

    def __init__(self):
        super().__init__()
        self.inc, self.outc = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.down1, self.down2 = Residual(8, nn.BatchNorm2d), Residual(8, nn.BatchNorm2d)
        self.up1, self.up2 = PreActivation(8, nn.BatchNorm2d), PreActivation(8, nn.BatchNorm2d)

    def forward(self, x):
        a = self.down1(self.inc(x))
        b = self.down2(a)
        return self.outc(self.up2(self.up1(b + 0.0) + a)).mean((2, 3))


class Dense(nn.Module):
    """Blocks that are given a list which grows behind their backs."""

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, 4, 3, padding=1)

        def forward(self, features):
            return self.conv(F.relu(self.norm(torch.cat(features, 1))))

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 1), nn.Linear(16, 10)
        self.layers = nn.ModuleDict({"layer%d" % i: Dense.Layer(4 + 4 * i) for i in range(3)})

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers.values():
            features.append(layer(features))
        return self.head(torch.cat(features, 1).mean((2, 3)))


class Stateful(Block):
    """A block with state of many kinds: it must be changed once a step."""

    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.calls, self.history, self.seen = 0, [], None
        self.register_buffer("average", torch.zeros(WIDTH))
        self.register_buffer("last", torch.zeros(WIDTH))
        self.scale = torch.nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        self.calls += 1
        self.history.append(self.calls)
        self.seen = x.detach().mean()
        self.late = float(self.calls)
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.ones(WIDTH), persistent=False)
        with torch.no_grad():
            self.average.data.mul_(0.9).add_(x.mean((0, 1)) * 0.1)
            self.last = x.mean((0, 1)) * self.calls
        x = super().forward(x * (1 + 0.01 * self.calls) + self.average + self.last)
        if random.random() < 0.5:
            x = x * 1.25
        return self.scale(x) * self.cache


class Meter:
    """An object that counts."""

    def __init__(self):
        self.sum, self.each = 0, {}


class Numbered(Block):
    """A block that first changes numbers in its fifth call: in its dictionary, its class, the file, or an object."""

    shared = 0

    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.used, self.scale, self.meter = 0, 1.0, Meter()
        Numbered.shared = LATE["factor"] = 0

    def forward(self, x):
        global NUMBER
        self.used += 1
        if self.used == 1:
            NUMBER = 0
        if self.used > 4:
            vars(self)["scale"] *= 1.5
            vars(self).setdefault("late", 0)
            vars(self)["late"] += 1
            Numbered.shared += 1
            self.meter.sum += 1
            NUMBER += 1
            LATE["factor"] += 1
            x = x * (1 + 0.01 * (self.scale + self.late + Numbered.shared + self.meter.sum + NUMBER + LATE["factor"]))
        return super().forward(x)


NUMBER, LATE = 0, {"factor": 0}


class Later(Block):
    """A block with state that is no attribute of its own, or that changes after the steps that are compared."""

    total = 0
    ring = None

    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.used, self.warm, self.recent, self.meter = 0, False, collections.deque(maxlen=3), {"steps": Meter()}
        self.draw, self.noise = torch.Generator().manual_seed(5), numpy.random.default_rng(5)
        self.bank, self.table = [torch.ones(WIDTH)], numpy.ones(3)
        Later.total = 0

    def forward(self, x):
        self.used += 1
        Later.total += 1
        self.recent.append(self.used)
        self.meter["steps"].sum += 1
        self.meter["steps"].each.setdefault("odd", []).append(self.used % 2)
        self.bank[0].mul_(0.9)
        self.table[0] += 1
        if self.used > 3:
            x = x * (1 if self.warm else 2)
            self.warm = True
            self.ring = self.ring or []
            self.ring.append(1)
            x = x + len(self.ring)
        seen = Later.total + sum(self.recent) + self.meter["steps"].sum + len(self.meter["steps"].each["odd"]) + self.table[0] + self.noise.random()
        x = super().forward(x * (1 + 0.001 * float(seen))) * self.bank[0]
        return x * (torch.rand(x.shape, generator=self.draw) > 0.1)


class Plain(nn.Module):
    """Nothing is repeated."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, x):
        return self.net(x.mean(1))


def words(step, length=LENGTH):
    torch.manual_seed(1000 + step)
    return torch.randint(0, WORDS, (4, length))


def pixels(step):
    torch.manual_seed(1000 + step)
    return torch.randn(4, 3, 16, 16)


def patches(step):
    torch.manual_seed(1000 + step)
    return torch.randn(4, LENGTH, 8)


def without_dropout(make):
    """Return what makes the same model without dropout."""
    def made():
        model = make()
        for module in model.modules():
            for name in ("p", "dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)
        return model

    return made
