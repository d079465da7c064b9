# batch accumulation
import torch
from torch import nn

batch_size = 8
torch.manual_seed(0)
x, y = torch.randn(44, 10), torch.randint(4, (44,))
model = nn.Linear(10, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    order = torch.randperm(len(x))
    for i in range(0, len(x), batch_size):
        rows = order[i:i + batch_size]
        optimizer.zero_grad()
        loss = criterion(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        print(loss.item())
