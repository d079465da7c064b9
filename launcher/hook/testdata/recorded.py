# Calls that are only recorded, before and while a model is trained: WAY trace, or graph,
# which stands for the recording of a CUDA graph where there is no GPU.
import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("error", torch.jit.TracerWarning)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(samples):
    model(torch.randn(samples, 8)).mean().backward()
    optimizer.step()


recording = [False]
cuda = torch.cuda
if sys.argv[1] == "graph":
    cuda.is_initialized = cuda.is_current_stream_capturing = lambda: recording[0]


def record():
    """A recording has 64 samples."""
    if sys.argv[1] == "trace":
        torch.jit.trace(model, torch.randn(64, 8))
        return
    recording[0] = True
    step(64)
    recording[0] = False


record()
for _ in range(3):
    step(4)
record()
for _ in range(2):
    step(4)
