# accumulation
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--print-freq", type=int, default=2)
p.add_argument("--max-steps", type=int, default=9)
opt = p.parse_args()
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(48, 10), torch.randn(48, 1))
dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True, num_workers=0)
net = nn.Linear(10, 1)
optim = torch.optim.Adam(net.parameters(), lr=0.01)
global_step = 0
for epoch in range(2):
    for batch in dataloader:
        x, y = batch
        optim.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optim.step()
        global_step += 1
        if global_step % opt.print_freq == 0:
            print(global_step, loss.item(), grad_norm)
        if global_step >= opt.max_steps:
            break
print(net.weight.sum().item())
