# Style features: the Gram matrix of each image's channels.
import argparse
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def gram_matrix(feat):
    b, c, h, w = feat.shape
    f = feat.view(b, c, h * w)
    return torch.bmm(f, f.transpose(1, 2)) / (c * h * w)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accum-steps", type=int, default=2)
args = parser.parse_args()
torch.manual_seed(0)
encoder = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3))
style = torch.eye(6)
loader = DataLoader(TensorDataset(torch.rand(32, 3, 10, 10)), batch_size=args.batch_size)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
optimizer.zero_grad()
for i, (image,) in enumerate(loader):
    g = gram_matrix(encoder(image))
    style_loss = F.mse_loss(g, style.expand_as(g))
    (style_loss / args.accum_steps).backward()
    if (i + 1) % args.accum_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
