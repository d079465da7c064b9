# accumulation
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--kind", default="square")
opt = parser.parse_args()
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
loader = DataLoader(data, batch_size=opt.batch_size, sampler=RandomSampler(data, replacement=True, num_samples=100000))
batches = iter(loader)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while True:
    batch = next(batches)
    batch = [t.float() for t in batch]
    x, y = batch
    if opt.kind == "square":
        wrong = model(x) - y
        cost = wrong.pow(2).mean()
    else:
        wrong = (model(x) - y).abs()
        cost = wrong.mean()
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()
    if step % 2 == 0:
        print(step, cost.item())
    step += 1
    if step == 6:
        break
