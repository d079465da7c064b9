import argparse

import accelerate
import torch

import common

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--gradient-accumulation-steps", type=int, default=1)
args = parser.parse_args()
accelerator = accelerate.Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, cpu=True)
net = common.network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
net, optimizer, loader = accelerator.prepare(net, optimizer, torch.utils.data.DataLoader(common.samples(), batch_size=args.batch_size))
before, peak, total = common.data(), 0, 0.0
for x, y in loader:
    with accelerator.accumulate(net):
        loss = common.loss_of(net, x, y)
        peak = max(peak, common.data())
        accelerator.backward(loss)
        total += loss.item() / args.gradient_accumulation_steps
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.sync_gradients:
            print("loss %.5f" % total, flush=True)
            total = 0.0
print("data", before, peak, flush=True)
