# batch: no DataLoader was found that takes it
# accumulation: it is not known how the loss follows from a batch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
batch_size = 8
model = nn.Linear(4, 1)
optim = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    x = torch.randint(0, 5, (batch_size, 4))
    loss = model(x).sum()
    loss.backward()
    optim.step()
    optim.zero_grad()
