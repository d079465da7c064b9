# batch
# accumulation: it is not known what attacked(model, x, y, optimizer) does with the optimizer
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def attacked(model, x, y, optimizer):
    optimizer.zero_grad()
    return nn.functional.mse_loss(model(x), y)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=8, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = attacked(model, x, y, optimizer)
    loss.backward()
    optimizer.step()
    print(loss.item())
