# batch
# accumulation: the learning rate follows from the number of the batch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=8, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 / (1 + i)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
