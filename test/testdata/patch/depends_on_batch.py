# batch
# accumulation: the backward pass depends on the batch: if trains
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(48, 4), torch.arange(48) % 5 > 0), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(x, trains):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    if trains:
        loss.backward()
        optimizer.step()
    return loss.item()


for x, wanted in data:
    print(train(x, wanted.all()))
