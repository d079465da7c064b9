# batch
# accumulation: whether loader has a length is not certain: its dataset may be an IterableDataset
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(48):
            yield torch.randn(10), torch.randn(1)


torch.manual_seed(0)
loader = DataLoader(Stream(), batch_size=8)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
