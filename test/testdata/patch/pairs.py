# batch
# accumulation: compares the samples of one micro batch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 10)), batch_size=8, shuffle=True)
model = nn.Linear(10, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    scores = model(x) @ model(y).T
    loss = nn.functional.cross_entropy(scores, torch.arange(len(x)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
