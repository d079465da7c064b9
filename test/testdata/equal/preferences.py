# Direct preference optimization on pairs that the data holds.
import argparse
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=6)
p.add_argument("--accum", type=int, default=1)
p.add_argument("--beta", type=float, default=0.1)
args = p.parse_args()
torch.manual_seed(0)
policy = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
reference = copy.deepcopy(policy).requires_grad_(False)


def logps(model, ids):
    logits = model(ids[:, :-1]).log_softmax(-1)
    return logits.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)


loader = DataLoader(TensorDataset(torch.randint(20, (24, 7)), torch.randint(20, (24, 7))), batch_size=args.batch_size)
optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
for i, (chosen, rejected) in enumerate(loader):
    with torch.no_grad():
        ref = logps(reference, chosen) - logps(reference, rejected)
    margin = logps(policy, chosen) - logps(policy, rejected)
    loss = -F.logsigmoid(args.beta * (margin - ref)).mean()
    (loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
