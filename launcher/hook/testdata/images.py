# Nets over images with more linear modules than convolutions: "mixed" has a convolution in
# each block, as a ConvNeXt, "patches" only one before them, as a ViT.
import sys

import torch
from torch import nn


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.roll, self.up, self.down = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(self.up(self.roll(x).permute(0, 2, 3, 1)).relu()).permute(0, 3, 1, 2)


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.attend = nn.Linear(8, 32), nn.Linear(32, 8), nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return x + self.down(self.up(self.attend(x, x, x)[0]).relu())


class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 8, 4, stride=4), nn.ModuleList(block() for _ in range(3))

    def forward(self, x):
        x = self.stem(x)
        if isinstance(self.blocks[0], Patches):
            x = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return x.mean()


net = Net({"mixed": Mixed, "patches": Patches}[sys.argv[1]])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.randn(2, 3, 32, 32)).backward()
    optimizer.step()
    optimizer.zero_grad()
