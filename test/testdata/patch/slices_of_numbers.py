# accumulation
# batch: the batch size is the number 8 in the loop and in its slices: give it a name there, such as BATCH_SIZE = 8
# note: the batch size is not certain
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(44, 10), torch.randint(4, (44,))
model = nn.Linear(10, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for i in range(0, len(x), 8):
    optimizer.zero_grad()
    loss = criterion(model(x[i:i + 8]), y[i:i + 8])
    loss.backward()
    optimizer.step()
    print(loss.item())
