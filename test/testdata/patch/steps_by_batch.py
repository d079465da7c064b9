# batch: the number of steps follows from the batch size: 40 // batch_size
import torch
from torch import nn

batch_size = 8
torch.manual_seed(0)
x, y = torch.randn(40, 4), torch.randn(40, 1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 40 // batch_size
for step in range(steps):
    rows = torch.randint(40, (batch_size,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rows]), y[rows])
    loss.backward()
    optimizer.step()
    print(loss.item())
