import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class MoE(nn.Module):
    def __init__(self, d, n=4):
        super().__init__()
        self.gate, self.n = nn.Linear(d, n), n
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(n))

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        top = probs.argmax(-1)
        out = torch.stack([e(x) for e in self.experts], 1)[torch.arange(len(x)), top]
        fraction = F.one_hot(top, self.n).float().mean(0)
        balance = self.n * (fraction * probs.mean(0)).sum()
        return out * probs.gather(1, top[:, None]), balance


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
model, head = MoE(10), nn.Linear(10, 4)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    h, balance = model(x)
    loss = F.cross_entropy(head(h), y) + 0.1 * balance
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
