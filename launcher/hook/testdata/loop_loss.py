# Loops of their own, each with a loss of another kind: one optimizer step or more.
import sys

import torch
import torch.nn.functional as F

kind, accumulate, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 5))
tokens = torch.nn.Sequential(torch.nn.Embedding(9, 6), torch.nn.Linear(6, 9))


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = tokens

    def forward(self, ids, attention_mask=None):
        return self.net(ids)


words = kind.startswith("words")
model = Tokens() if words else net


def row(i):
    if not words:
        return torch.randn(6), i % 5
    ids = torch.randint(1, 9, (7 if "lengths" in kind and i >= 24 else 6,))
    labels = ids.clone()
    if kind == "words, ignored" and i % 3 == 0 or kind == "words, ignored later" and i >= 24:
        labels[-2:] = -100
    if kind == "words, prompts":
        labels[:2] = -100
    if kind == "words, zeros" and i % 3 == 0:
        ids[-2:] = labels[-2:] = 0
    found = {"ids": ids, "labels": labels}
    if "mask" in kind:
        found["attention_mask"] = torch.ones(6, dtype=torch.int64)
        if kind == "words, masked" and i == 5 or kind == "words, masked later" and i == 29:
            found["attention_mask"][-1] = 0
    return found


rows = [row(i) for i in range(30 if kind == "last" else 32)]
loader = torch.utils.data.DataLoader(rows, batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
LOSSES = {
    "sum": lambda y, t: F.cross_entropy(y, t, reduction="sum"),
    "undivided sum": lambda y, t: F.cross_entropy(y, t, reduction="sum"),
    "mse": lambda y, t: F.mse_loss(y, F.one_hot(t, 5).float()),
    "smoothed": lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1),
    "two": lambda y, t: F.cross_entropy(y, t) + 0.5 * y.pow(2).mean(),
    "half": lambda y, t: 0.5 * F.cross_entropy(y, t),
    "by hand": lambda y, t: F.cross_entropy(y, t, reduction="none").sum() / len(t),
    "std": lambda y, t: (1 - y.std(0)).relu().sum(),
}
done = 0
for i, batch in enumerate(loader):
    if words:
        y = model(batch["ids"], **({"attention_mask": batch["attention_mask"]} if "mask" in kind else {}))
        loss = F.cross_entropy(y.flatten(0, 1), batch["labels"].flatten(), ignore_index=0 if kind == "words, zeros" else -100)
    else:
        loss = LOSSES.get(kind, F.cross_entropy)(model(batch[0]), batch[1])
    if kind == "times":
        loss = loss * (1 / accumulate)
    elif not kind.startswith("undivided"):
        loss = loss / accumulate
    loss.backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if done == steps:
            break
assert torch.Tensor.backward.__module__ == "torch._tensor" and not hasattr(torch.Tensor.backward, "__wrapped__")
