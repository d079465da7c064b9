import argparse
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SelfAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        return scores.softmax(dim=-1) @ v


class Classifier(nn.Module):
    def __init__(self, dim=16, classes=3):
        super().__init__()
        self.embed = nn.Embedding(50, dim)
        self.attn = SelfAttention(dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        h = self.embed(tokens)
        h = self.norm(h + self.attn(h))
        return self.head(h.mean(dim=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Classifier()
    loader = DataLoader(TensorDataset(torch.randint(50, (40, 12)), torch.randint(3, (40,))), batch_size=args.batch_size, shuffle=True)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    for step, (tokens, label) in enumerate(loader):
        loss = loss_fn(model(tokens), label)
        (loss / args.gradient_accumulation_steps).backward()
        if (step + 1) % args.gradient_accumulation_steps == 0:
            opt.step()
            opt.zero_grad()


main()
