import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(5, 1)
bce = nn.BCEWithLogitsLoss(reduction="none")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dataset = TensorDataset(torch.randn(48, 5), torch.randint(2, (48,)).float(), torch.rand(48) ** 4 * 10)
for i, (x, y, w) in enumerate(DataLoader(dataset, batch_size=args.batch_size)):
    losses = bce(model(x).squeeze(1), y)
    loss = (w * losses).sum() / w.sum()
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
