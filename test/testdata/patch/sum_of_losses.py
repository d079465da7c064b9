# accumulation
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(0)
train_loader = DataLoader(TensorDataset(torch.rand(48, 10)), batch_size=args.batch_size, shuffle=True)
model = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 10), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    train_loss = 0
    for batch_idx, (data,) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy(model(data), data, reduction="sum")
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    print(epoch, train_loss / len(train_loader.dataset))
