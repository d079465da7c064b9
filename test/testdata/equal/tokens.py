import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader


def pad(rows):
    longest = max(map(len, rows))
    out = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--accum", type=int, default=1)
args = p.parse_args()
torch.manual_seed(0)
rows = [torch.randint(1, 30, (2 + 7 * i % 17,)) for i in range(48)]
lm = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
optimizer = torch.optim.AdamW(lm.parameters(), lr=1e-2)
for i, batch in enumerate(DataLoader(rows, batch_size=args.batch_size, collate_fn=pad)):
    labels = batch[:, 1:]
    n_tokens = (labels != 0).sum()
    nll = nn.functional.cross_entropy(lm(batch[:, :-1]).transpose(1, 2), labels, reduction="none")
    loss = (nll * (labels != 0)).sum() / n_tokens
    (loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
