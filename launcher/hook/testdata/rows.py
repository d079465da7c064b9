# The forward of several models, each asked whether it computes its rows by itself. Prints the
# answers, and what the question left behind: nothing.
import json
import os
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(sys.argv[1])
from inside.base import rank
from inside.model import rows

rank.start.update(role="rank", told={"GPURUN_PROBE_ORDERS": os.devnull})


class Net(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.w, self.body = nn.Linear(6, 6), forward
        self.norm, self.drop, self.lstm = nn.BatchNorm1d(6), nn.Dropout(0.5), nn.LSTM(6, 6)
        self.register_buffer("kept", torch.zeros(6))
        self.calls, self.seen = 0, []

    def forward(self, x, labels=None):
        return self.body(self, self.w(x), labels)


def keeping(self, h, _):
    with torch.no_grad():
        self.kept += h.mean(0)
    self.calls += 1
    self.seen.append(float(h.sum()))
    return h + self.kept


def counting(self, h, _):
    self.calls += 1
    self.seen.append(self.calls)
    self.kept += 1
    return h.tanh()


def stochastic(self, h, _):
    return h * h.new_empty(len(h), 1).bernoulli_(0.7) + torch.rand_like(h) + torch.randn(len(h), 6) * random.random()


def failing(self, h, _):
    self.kept += 1
    if len(h) < 8:
        raise ValueError("a batch is 8 rows")
    return h


FORWARDS = {
    "plain": lambda self, h, _: h.relu(), "dropout": lambda self, h, _: self.drop(h), "function of dropout": lambda self, h, _: F.dropout(h, 0.3),
    "dictionary": lambda self, h, _: {"logits": h, "pair": (h, h.sum(1))}, "flattened": lambda self, h, _: h.view(-1, 3),
    "loss": lambda self, h, y: (F.cross_entropy(h, y), h), "sum": lambda self, h, y: F.cross_entropy(h, y, reduction="sum"),
    "counting": counting, "stochastic": stochastic, "layer norm": lambda self, h, _: F.layer_norm(h, (6,)),
    "batch norm": lambda self, h, _: self.norm(h), "sequence": lambda self, h, _: self.lstm(h)[0], "attention": lambda self, h, _: (h @ h.t()).softmax(-1) @ h,
    "sorted": lambda self, h, _: h.sort(0)[0], "shuffled": lambda self, h, _: h + h[torch.randperm(len(h))], "largest": lambda self, h, _: h / h.abs().max(),
    "by its size": lambda self, h, _: h * len(h), "keeping": keeping, "root of the loss": lambda self, h, y: F.cross_entropy(h, y).sqrt(),
    "running sum": lambda self, h, _: h.cumsum(0), "neighbours": lambda self, h, _: h.view(-1, 2, 6).flip(1).reshape(-1, 6), "failing": failing,
}


def state(model):
    return json.dumps([
        {k: v.tolist() for k, v in model.state_dict().items()}, model.calls, model.seen, model.training, sorted(model.__dict__),
        torch.get_rng_state().sum().item(), str(random.getstate())[:200], torch.is_grad_enabled(), [p.grad is None for p in model.parameters()],
    ])


torch.manual_seed(0)
for name, forward in FORWARDS.items():
    model = Net(forward)
    x, y = torch.randn(8, 6), torch.randint(6, (8,))
    before = state(model), x.tolist()
    answer = rows.rows_are_independent(model, (x,), {"labels": y})
    left = (state(model), x.tolist()) != before
    print(json.dumps({"forward": name, "word": answer.word, "reason": answer.reason, "left": left}))
model = Net(FORWARDS["plain"])
model.w.register_forward_hook(lambda *_: print("a hook ran"))
print(json.dumps({"forward": "hook", "word": rows.rows_are_independent(model, (torch.randn(8, 6),), {}).word}))
print(json.dumps({"forward": "one row", "word": rows.rows_are_independent(Net(FORWARDS["plain"]), (torch.randn(1, 6),), {}).word}))
pair = Net(FORWARDS["plain"])
pair.forward = lambda x, y: pair.w(x) + y
print(json.dumps({"forward": "two inputs of two rows", "word": rows.rows_are_independent(pair, (torch.randn(2, 6), torch.randn(2, 6)), {}).word}))
