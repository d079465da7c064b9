# batch
# accumulation: several optimizers make steps in this loop: opt_d, opt_g
# resume: it writes no checkpoint
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10)), batch_size=8, shuffle=True)
g, d = nn.Linear(4, 10), nn.Linear(10, 1)
opt_g = torch.optim.Adam(g.parameters())
opt_d = torch.optim.Adam(d.parameters())
for (x,) in loader:
    opt_d.zero_grad()
    loss_d = d(g(torch.randn(len(x), 4)).detach()).mean() - d(x).mean()
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = -d(g(torch.randn(len(x), 4))).mean()
    loss_g.backward()
    opt_g.step()
    print(loss_d.item(), loss_g.item())
