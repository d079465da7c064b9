# The pads are predicted, too; how many there are follows from the longest row of a micro batch.
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randint(1, 20, (3 + 5 * i % 11,), generator=g)


def collate(rows):
    longest = max(len(r) for r in rows)
    return torch.stack([nn.functional.pad(r, (0, longest - len(r))) for r in rows])


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i, tokens in enumerate(DataLoader(Rows(), batch_size=args.batch_size, collate_fn=collate)):
    logits = net(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        opt.step()
        opt.zero_grad()
