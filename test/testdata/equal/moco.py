import argparse
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self, dim=6, size=32, m=0.9):
        super().__init__()
        self.m = m
        self.encoder_q = nn.Linear(10, dim)
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def keys(self, x):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.mul_(self.m).add_(q, alpha=1 - self.m)
        return F.normalize(self.encoder_k(x), dim=1)

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[:, self.ptr : self.ptr + n] = keys.T
        self.ptr = (self.ptr + n) % self.queue.shape[1]

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        k = self.keys(im_k)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue.clone())
        self.enqueue(k)
        logits = torch.cat([positive, negative], dim=1) / 0.2
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.1)
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(64, 10)), batch_size=args.batch_size)):
    loss = model(x, x * 0.9) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
