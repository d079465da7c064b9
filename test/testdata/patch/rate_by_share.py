# accumulation
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def adjust_learning_rate(optimizer, epoch):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * (1 - epoch / 2)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=args.batch_size, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        adjust_learning_rate(optimizer, epoch + i / len(loader))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(optimizer.param_groups[0]["lr"], loss.item())
