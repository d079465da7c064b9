import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class SupCon(nn.Module):
    def forward(self, features, labels):
        same = torch.eq(labels.view(-1, 1), labels.view(1, -1)).float()
        scores = torch.matmul(features, features.T) / 0.1
        keep = 1 - torch.eye(len(features))
        log_prob = scores - torch.log((scores.exp() * keep).sum(1, keepdim=True))
        same = same * keep
        return -((same * log_prob).sum(1) / same.sum(1).clamp(min=1)).mean()


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
net = nn.Linear(10, 6)
criterion = SupCon()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=args.batch_size)
for i, (x, y) in enumerate(loader):
    loss = criterion(F.normalize(net(x), dim=1), y)
    loss = loss / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
