# batch accumulation
import torch
from torch import nn

CHUNK = 8
torch.manual_seed(0)
x, y = torch.randn(44, 10), torch.randn(44, 4)
model = nn.Linear(10, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for i in range(0, len(x), CHUNK):
    optimizer.zero_grad()
    loss = (model(x[i:i + CHUNK]) - y[i:i + CHUNK]).pow(2).sum() / CHUNK
    loss.backward()
    optimizer.step()
    print(loss.item())
