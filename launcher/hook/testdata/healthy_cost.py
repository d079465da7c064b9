"""What steps of a healthy job cost. Prints JSON: the processor time of the first step in milliseconds, of later
ones in microseconds, and how many functions of gpurun's hook a later step calls.

A later step is one of the fastest tenth, so that other processes disturb it as little as possible.
Usage: healthy_cost.py MODEL
"""
import itertools
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WIDTH, WORDS = 400, 16, 50


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention, self.after = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(WORDS, WIDTH), nn.Sequential(*[Block() for _ in range(24)]), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))[:, -1]


class Bottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
            nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8))

    def forward(self, x):
        return F.relu(x + self.layers(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stages = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)), nn.ModuleList(
            nn.Sequential(*[Bottleneck() for _ in range(n)]) for n in (3, 4, 6, 3))
        self.head = nn.Linear(8, WORDS)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0][:, -1])


class Padded(nn.Module):
    """Its batches are dictionaries, whose tensors have another length in each step."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, batch):
        return self.head(self.embed(batch["ids"]).mean(1))


def main(name):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = {"gpt": GPT, "resnet": ResNet, "lstm": LSTM, "padded": Padded, "linear": lambda: nn.Linear(8, WORDS)}[name]()
    x = {"resnet": torch.randn(2, 3, 8, 8), "linear": torch.randn(2, 8)}.get(name, torch.randint(WORDS, (2, 8)))
    y = torch.randint(WORDS, (2,))
    batches = itertools.cycle([{"ids": x[:, :length]} for length in (7, 8, 5, 3, 6)] if name == "padded" else [x])
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss = F.cross_entropy(model(next(batches)), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    times = []
    for _ in range(STEPS):
        began = time.process_time_ns()
        step()
        times.append(time.process_time_ns() - began)
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(1) if event == "call" and "probe" in str(frame.f_globals.get("__package__")) else None)
    step()
    sys.setprofile(None)
    later = sorted(times[20:])
    print(json.dumps({"first": times[0] / 1e6, "step": statistics.median(later[:len(later) // 10]) / 1e3, "calls": len(calls)}))


if __name__ == "__main__":
    main(sys.argv[1])
