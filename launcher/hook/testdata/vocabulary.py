# Trains a model whose logits have 64 MiB, under a ceiling that leaves so many MiB.
import json
import sys

import torch
from loops import limit

torch.set_num_threads(1)
WORDS, TOKENS = 16384, 1024


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(WORDS, 4), torch.nn.Linear(4, WORDS, bias=False)

    def forward(self, x):
        return self.head(self.embed(x))


torch.manual_seed(0)
net = Model().train()
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
x = torch.arange(TOKENS) % 1000
torch.mm(torch.ones(99, 99), torch.ones(99, 99))  # OpenBLAS takes its own memory, for which it would wait for ever later
if sys.argv[1] != "0":
    limit(int(sys.argv[1]))
losses = []
if len(sys.argv) > 2:  # an evaluation comes first, as in nanoGPT
    net.eval()
    with torch.no_grad():
        losses += [round(torch.nn.functional.cross_entropy(net(x), x).item(), 3) for _ in range(2)]
    net.train()
    x = x[:1]
for step in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), x)
    loss.backward()
    optimizer.step()
    losses.append(round(loss.item(), 3))
print(json.dumps({"losses": losses, "sum": round(sum(p.detach().double().abs().sum().item() for p in net.parameters()), 2)}))
