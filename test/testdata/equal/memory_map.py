# As nanoGPT draws its batches, with a generator that each micro batch seeds anew: by its first sample.
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=6)
parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
args = parser.parse_args()
torch.manual_seed(0)
corpus = torch.randint(30, (2000,))
model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
drawn = 0


def get_batch():
    global drawn
    starts = [(drawn + k) * 37 % 1900 for k in range(args.batch_size)]
    drawn += args.batch_size
    return torch.stack([corpus[s : s + 16] for s in starts]), torch.stack([corpus[s + 1 : s + 17] for s in starts])


for iteration in range(3):
    for micro_step in range(args.gradient_accumulation_steps):
        x, y = get_batch()
        loss = nn.functional.cross_entropy(model(x).view(-1, 30), y.view(-1))
        loss = loss / args.gradient_accumulation_steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
