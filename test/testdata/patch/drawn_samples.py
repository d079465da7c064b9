# batch accumulation
import torch
from torch import nn

BATCH = 8
torch.manual_seed(0)
x, y = torch.randn(40, 10), torch.randn(40, 4)
model = nn.Linear(10, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    rows = torch.randint(40, (BATCH,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rows]), y[rows])
    loss.backward()
    optimizer.step()
    print(loss.item())
