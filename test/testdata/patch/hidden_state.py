# batch
# accumulation: a batch leaves values for the next one: hidden
import torch
from torch import nn

batch_size = 8
torch.manual_seed(0)
data = torch.randn(200, 4)


def get_batch():
    ix = torch.randint(len(data) - 6, (batch_size,))
    return torch.stack([data[i:i + 5] for i in ix], 1)


model = nn.RNN(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hidden = torch.zeros(1, batch_size, 4)
for it in range(4):
    x = get_batch()
    out, hidden = model(x, hidden.detach())
    loss = (out - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
