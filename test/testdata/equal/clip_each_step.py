import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--max-norm", type=float, default=0.1)
a = p.parse_args()
torch.manual_seed(0)
net = nn.GRU(5, 9, batch_first=True)
out = nn.Linear(9, 1)
params = list(net.parameters()) + list(out.parameters())
opt = torch.optim.SGD(params, lr=1.0)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1 / (1 + s))
for i, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(32, 7, 5), torch.randn(32, 1)), batch_size=a.batch_size)):
    h, _ = net(x)
    loss = nn.functional.smooth_l1_loss(out(h[:, -1]), y)
    (loss * (1 / a.accumulate)).backward()
    if (i + 1) % a.accumulate == 0:
        nn.utils.clip_grad_norm_(params, a.max_norm)
        opt.step()
        sched.step()
        opt.zero_grad()
