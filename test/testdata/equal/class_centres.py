"""Metric learning with an additive margin: the cosine of each embedding with each class's centre."""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class CosFace(nn.Module):
    def __init__(self, dim, classes, s=16.0, m=0.2):
        super().__init__()
        self.W = nn.Parameter(torch.randn(classes, dim))
        self.s, self.m = s, m

    def forward(self, x, label):
        cosine = F.normalize(x) @ F.normalize(self.W).T
        margin = F.one_hot(label, cosine.shape[1]) * self.m
        return F.cross_entropy(self.s * (cosine - margin), label)


def main(args):
    torch.manual_seed(0)
    backbone, head = nn.Linear(20, 8), CosFace(8, 6)
    dataset = TensorDataset(torch.randn(48, 20), torch.randint(6, (48,)))
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
    for epoch in range(3):
        for i, (x, label) in enumerate(DataLoader(dataset, batch_size=args.batch_size, shuffle=False)):
            loss = head(backbone(x), label)
            loss = loss / args.accum
            loss.backward()
            if (i + 1) % args.accum == 0:
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accum", type=int, default=1)
    main(parser.parse_args())
