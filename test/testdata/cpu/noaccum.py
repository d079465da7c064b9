# A loop without arguments for the accumulation, whose activations are most of what it needs.
import argparse

import torch
import torch.nn.functional as F
from torch import nn



def data():
    """Gives the process's data in MiB, which a ceiling on the CPU is of."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmData")) // 1024


parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", "-b", type=int, default=1024)
args = parser.parse_args()

torch.manual_seed(0)
net = nn.Sequential(*(nn.Sequential(nn.Linear(128, 2048), nn.GELU(), nn.Linear(2048, 128)) for _ in range(6)), nn.Linear(128, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
samples = torch.utils.data.TensorDataset(torch.randn(2048, 128), torch.randint(10, (2048,)))
before, seen = data(), []
net[-1].register_forward_hook(lambda *_: seen.append(data()))
loader = torch.utils.data.DataLoader(samples, batch_size=args.batchSize)
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    print("loss %.5f" % loss.item(), flush=True)
print("data", before, max(seen), flush=True)
