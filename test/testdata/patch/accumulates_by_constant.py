# batch
# accumulation: it accumulates gradients already: if (i + 1) % ACCUM == 0
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUM = 2
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=4, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y) / ACCUM
    loss.backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
