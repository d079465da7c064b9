import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MF(nn.Module):
    def __init__(self, users, items, k):
        super().__init__()
        self.user, self.item = nn.Embedding(users, k), nn.Embedding(items, k)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1)


def main(batch_size, accum_steps):
    torch.manual_seed(0)
    model = MF(10, 12, 6)
    ratings = TensorDataset(torch.randint(10, (60,)), torch.randint(12, (60,)), torch.rand(60))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for n, (u, i, r) in enumerate(DataLoader(ratings, batch_size=batch_size)):
        loss = torch.mean((model(u, i) - r) ** 2)
        loss = loss / accum_steps
        loss.backward()
        if (n + 1) % accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=10)
    ap.add_argument("--accum-steps", type=int, default=1)
    ns = ap.parse_args()
    main(ns.batch_size, ns.accum_steps)
