# batch: the number of samples may follow from the batch size: BATCH * STEPS
# accumulation: it accumulates gradients already: if (i + 1) % 2 == 0
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 8
STEPS = 6


class Samples(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, i):
        return torch.full((4,), i / 48), torch.ones(1)


torch.manual_seed(0)
loader = DataLoader(Samples(), batch_size=BATCH, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y) / 2
    loss.backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
