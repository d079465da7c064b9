# Graphs of one size: each with its adjacency matrix.
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, adj, x):
        x = torch.relu(adj @ self.w1(x))
        x = adj @ self.w2(x)
        return x.mean(1)


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
graphs = TensorDataset(torch.rand(24, 6, 6), torch.randn(24, 6, 4), torch.randint(2, (24,)))
gcn = GCN()
optimizer = torch.optim.Adam(gcn.parameters())
for i, (adj, x, y) in enumerate(DataLoader(graphs, batch_size=args.batch_size)):
    loss = nn.functional.nll_loss(gcn(adj, x).log_softmax(1), y)
    (loss / args.accum).backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
