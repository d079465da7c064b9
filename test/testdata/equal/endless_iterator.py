import argparse
import itertools
import torch
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--micro-batch-size", type=int, default=8)
ap.add_argument("--gradient-accumulation-steps", type=int, default=2)
ap.add_argument("--max-steps", type=int, default=3)
opts = ap.parse_args()

torch.manual_seed(0)
features, labels = torch.randn(64, 12), torch.randint(0, 2, (64, 3)).float()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, labels), batch_size=opts.micro_batch_size)
model = torch.nn.Linear(12, 3)
optim = torch.optim.AdamW(model.parameters(), lr=1e-2)
batches = itertools.chain.from_iterable(itertools.repeat(loader))
for step in range(opts.max_steps):
    optim.zero_grad()
    for micro_step in range(opts.gradient_accumulation_steps):
        x, y = next(batches)
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        loss = loss / opts.gradient_accumulation_steps
        loss.backward()
    optim.step()
