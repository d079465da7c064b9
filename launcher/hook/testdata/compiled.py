# A compiled model, a compiled step, or a compiled optimizer: what PyTorch makes of them
# is printed.
import sys

import torch
import torch._dynamo
from model import Net, data
from torch._dynamo.utils import counters

what = sys.argv[1]
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.01))
graphs = []


def backend(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return graph.forward


def compiled(f):
    return torch.compile(f, backend=backend, fullgraph=True)


def loss_of(x, y):
    return (net(x) - y).pow(2).mean()


if what == "model":
    net = compiled(net)
elif what == "in place":
    net.compile(backend=backend, fullgraph=True)
elif what == "step":
    loss_of = compiled(loss_of)
step = torch.compile(optimizer.step, backend=backend) if what == "optimizer" else optimizer.step
for x, y in torch.utils.data.DataLoader(data(), batch_size=16):
    loss = loss_of(x, y)
    loss.backward()
    step()
    optimizer.zero_grad()
print(what, graphs, {k: dict(v) for k, v in counters.items() if k in ("graph_break", "stats", "unimplemented")}, "%.6f" % loss.item())
