# What the jobs of different makes have in common: the network, its data, and the loop. Each gives its batch in another way.
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LENGTH = 16, 160


def data():
    """Gives the process's data in MiB, which a ceiling on the CPU is of."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmData")) // 1024


def network(out=10):
    torch.manual_seed(0)
    layers = [m for _ in range(12) for m in (nn.Linear(WIDTH, 1024), nn.GELU(), nn.Linear(1024, WIDTH))]
    return nn.Sequential(*layers, nn.Linear(WIDTH, out))


def samples():
    torch.manual_seed(1)
    return torch.utils.data.TensorDataset(torch.randn(64, LENGTH, WIDTH), torch.randint(10, (64, LENGTH)))


def loss_of(net, x, y):
    return F.cross_entropy(net(x).flatten(0, 1), y.flatten())


def train(net, loader, accum, divided=True):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    before, peak, total = data(), 0, 0.0
    for i, (x, y) in enumerate(loader):
        loss = loss_of(net, x, y)
        peak = max(peak, data())
        (loss / accum if divided else loss).backward()
        total += loss.item() / accum
        if (i + 1) % accum == 0:
            optimizer.step()
            optimizer.zero_grad()
            print("loss %.5f" % total, flush=True)
            total = 0.0
    print("data", before, peak, flush=True)


def run(batch, accum, **options):
    train(network(), torch.utils.data.DataLoader(samples(), batch_size=batch), accum, **options)
