# Accelerate with its settings in the code.
import accelerate
import torch
from model import Net, data

accelerator = accelerate.Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True)
net = Net()
optimizer = torch.optim.AdamW(net.parameters())
net, optimizer, loader = accelerator.prepare(net, optimizer, torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True))
for x, y in loader:
    with accelerator.accumulate(net):
        loss = (net(x) - y).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
