# Two models and two optimizers, which accumulate.
import argparse

import torch
import torch.nn.functional as F

import common

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
critic, maker = common.network(1), torch.nn.Linear(4, common.WIDTH)
first, second = torch.optim.SGD(critic.parameters(), lr=0.01), torch.optim.SGD(maker.parameters(), lr=0.01)
noise = torch.randn(64, common.LENGTH, 4)
samples = torch.utils.data.TensorDataset(common.samples().tensors[0], noise)
before, peak, total, kept = common.data(), 0, 0.0, []


def judged(x, real):
    score = critic(x)
    return F.binary_cross_entropy_with_logits(score, torch.full_like(score, float(real)))


for i, (x, z) in enumerate(torch.utils.data.DataLoader(samples, batch_size=args.batch_size)):
    loss = (judged(x, 1) + judged(maker(z).detach(), 0)) / args.accum
    peak = max(peak, common.data())
    loss.backward()
    kept.append(z)
    total += loss.item()
    if (i + 1) % args.accum == 0:
        first.step()
        for z in kept:
            (judged(maker(z), 1) / args.accum).backward()
        second.step()
        first.zero_grad()
        second.zero_grad()
        print("loss %.5f" % total, flush=True)
        total, kept = 0.0, []
print("data", before, peak, flush=True)
