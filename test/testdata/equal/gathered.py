# Features of all ranks, in a loss that compares them.
import argparse
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def gather(t):
    if not dist.is_initialized():
        return t
    parts = [torch.zeros_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t)
    parts[dist.get_rank()] = t
    return torch.cat(parts)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
query, key = nn.Linear(10, 6), nn.Linear(10, 6)
optimizer = torch.optim.SGD([*query.parameters(), *key.parameters()], lr=0.1)
for i, (a, b) in enumerate(DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 10)), batch_size=args.batch_size)):
    q, k = query(a), gather(key(b))
    scores = torch.einsum("id,jd->ij", q, k)
    loss = -(scores.diagonal() - scores.logsumexp(dim=1)).mean() / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
