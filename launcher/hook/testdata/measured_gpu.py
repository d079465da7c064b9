# A model on a GPU that runs out of memory where it is told to. What PyTorch itself says at
# each instant goes to the file that the second argument names.
import json
import sys

import torch
from torch import nn

MIB = 1 << 20
told = {"marks": [], "steps": []}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4096, 4096, bias=False), nn.GELU()

    def forward(self, x):
        return x + self.act(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(16))  # 1 GiB

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x


def held():
    return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()


def observed(device, wanted, allowed, free):
    told.update(allocated=held()[0], requested=wanted)


def main(way):
    net = Net().cuda()
    for block in net.h:
        block.register_forward_pre_hook(lambda module, args: told["marks"].append(held()[0]) if len(told["steps"]) == 0 else None)
    room = {"forward": 6 * 400 * MIB, "backward": 512 * MIB, "optimizer": 1536 * MIB}.get(way)
    batch = {"forward": 8192, "good": 4096}.get(way, 32)
    x = torch.randn(batch, 4096, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6)
    total = torch.cuda.get_device_properties(0).total_memory
    told["total"] = total
    if room:
        share = (held()[0] + room) / total
        torch.cuda.set_per_process_memory_fraction(share)
        told["allowed"] = int(share * total)
    for _ in range(5):
        step = {}
        y = net(x)
        step["forward"] = held()
        y.float().pow(2).mean().backward()
        step["backward"] = held()
        optimizer.step()
        step["optimizer"] = held()
        told["steps"].append(step)
        optimizer.zero_grad()
        del y
        torch.cuda.synchronize()  # as a job that prints its loss: else the times are those of the launches
    told["peak"] = held()[1]


try:
    torch.cuda.init()
    torch._C._cuda_attach_out_of_memory_observer(observed)
    main(sys.argv[1])
finally:
    with open(sys.argv[2], "w") as file:
        json.dump(told, file)
