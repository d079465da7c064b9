# batch: the loop counts steps
# accumulation: the loop counts steps
import torch
from torch import nn

streams, window = 4, 10
torch.manual_seed(0)
net, head, emb = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 50), nn.Embedding(50, 8)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters(), *emb.parameters()], lr=0.1)
text = torch.randint(0, 50, (streams, 101))
state = (torch.zeros(1, streams, 8), torch.zeros(1, streams, 8))
for i in range(0, text.size(1) - window, window):
    x, y = text[:, i : i + window], text[:, i + 1 : i + 1 + window]
    state = [s.detach() for s in state]
    out, state = net(emb(x), state)
    loss = nn.functional.cross_entropy(head(out).reshape(-1, 50), y.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
