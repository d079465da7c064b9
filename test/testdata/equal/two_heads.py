import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, default=8)
parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
parser.add_argument("--aux_weight", type=float, default=0.4)
args = parser.parse_args()
torch.manual_seed(1)
trunk, main_head, aux_head = nn.Linear(14, 14), nn.Linear(14, 3), nn.Linear(14, 1)
optimizer = torch.optim.SGD(list(trunk.parameters()) + list(main_head.parameters()) + list(aux_head.parameters()), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 14), torch.randint(3, (64,)), torch.randn(64, 1)), batch_size=args.train_batch_size)
for step, (x, y, z) in enumerate(loader):
    h = trunk(x).relu()
    loss = nn.functional.cross_entropy(main_head(h), y)
    loss += args.aux_weight * nn.functional.l1_loss(aux_head(h), z)
    loss /= args.gradient_accumulation_steps
    loss.backward()
    if (step + 1) % args.gradient_accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
