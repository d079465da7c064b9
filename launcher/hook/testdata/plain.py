# A loop of its own, with an evaluation before each epoch.
import argparse

import torch
from model import Block, Net, data

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--start", default="fork")
parser.add_argument("--optimizer", default="AdamW")
parser.add_argument("--try-first", action="store_true")
parser.add_argument("--no-loader", action="store_true")
args = parser.parse_args()


def main():
    call = torch.nn.Module.__call__
    set_up = torch.utils.data.DataLoader(data(), batch_size=32)
    context = args.start if args.workers else None
    loader = torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True, num_workers=args.workers, multiprocessing_context=context)
    net = Net()
    optimizer = getattr(torch.optim, args.optimizer)(net.parameters(), lr=0.1)
    if args.try_first:
        net(torch.zeros(1, *data()[0][0].shape))
    if args.no_loader:
        loader = [(x.clone(), y.clone()) for x, y in zip(*(torch.stack(t).split(8) for t in zip(*data())))]
        set_up = []
    for epoch in range(2):
        net.eval()
        with torch.no_grad():
            for x, y in set_up:
                net(x)
        net.train()
        for i, (x, y) in enumerate(loader):
            loss = (net(x) - y).pow(2).mean() / args.accumulate
            loss.backward()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert torch.nn.Module.__call__ is not call, "the hook was never there"
    assert torch.nn.Module.__call__.__qualname__.startswith("Module."), "the hook is still there"
    assert "__call__" not in vars(Block), "the hook of the blocks is still there"


if __name__ == "__main__":
    main()
