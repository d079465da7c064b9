import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--total-batch-size", type=int, default=16)
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
accum_iter = args.total_batch_size // args.batch_size

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.GELU(), nn.Linear(24, 10))
loader = DataLoader(TensorDataset(torch.rand(96, 1, 6, 6), torch.randint(10, (96,))), batch_size=args.batch_size, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for data_iter_step, (samples, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(samples), targets)
    loss /= accum_iter
    loss.backward()
    if (data_iter_step + 1) % accum_iter == 0:
        optimizer.step()
        optimizer.zero_grad()
