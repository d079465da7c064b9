# batch
# accumulation: the loss may follow from the part of the batches that are done: step / total
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(64, 8)), batch_size=8)

total = len(loader) * 2
step = 0
for epoch in range(2):
    for (x,) in loader:
        out = model(x)
        loss = (out - x).pow(2).mean() + (step / total) * out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(loss.item())
