# batch accumulation
import torch
from torch import nn

B = 8
torch.manual_seed(0)
x, y = torch.randn(44, 10), torch.randint(4, (44,))
model = nn.Linear(10, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
n_batches = len(x) // B
for epoch in range(2):
    for i in range(n_batches):
        start, end = i * B, (i + 1) * B
        xb = x[start:end]
        yb = y[i * B : i * B + B]
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        print(loss.item())
