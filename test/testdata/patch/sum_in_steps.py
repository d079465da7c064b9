# batch accumulation
import torch
from torch import nn

batch_size = 8
max_iters = 6
torch.manual_seed(0)
data = torch.randint(0, 20, (400,))


def get_batch():
    ix = torch.randint(len(data) - 9, (batch_size,))
    return torch.stack([data[i:i + 8] for i in ix]), torch.stack([data[i + 1:i + 9] for i in ix])


model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for it in range(max_iters):
    if it % 2 == 0:
        print("step", it)
    xb, yb = get_batch()
    logits = model(xb)
    loss = (logits.sum(-1) - yb).pow(2).sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(loss.item())
