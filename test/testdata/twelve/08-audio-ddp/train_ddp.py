# torchrun --standalone --nproc_per_node=2 train_ddp.py --batch-size 32
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Tones(Dataset):
    """1-d waveforms; the label is the index of the carrier frequency."""

    def __init__(self, n, length, classes, seed):
        self.n, self.length, self.classes, self.seed = n, length, classes, seed
        self.t = torch.arange(length) / 8000.0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        y = int(torch.randint(self.classes, (1,), generator=g))
        f0 = 200 + 150 * y + 20 * torch.rand(1, generator=g)
        phase = 6.28 * torch.rand(1, generator=g)
        x = torch.sin(6.2832 * f0 * self.t + phase) + 0.8 * torch.randn(self.length, generator=g)
        return x[None], y


class ConvBlock(nn.Module):
    def __init__(self, c, dilation, drop):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(c, c, 5, padding=2 * dilation, dilation=dilation, bias=False),
            nn.BatchNorm1d(c), nn.SiLU(), nn.Dropout(drop),
            nn.Conv1d(c, c, 1, bias=False), nn.BatchNorm1d(c),
        )
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(x + self.body(x))


class AudioNet(nn.Module):
    def __init__(self, classes, c=24, drop=0.1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, c, 9, stride=2, padding=4, bias=False), nn.BatchNorm1d(c), nn.SiLU())
        self.blocks = nn.Sequential(*[ConvBlock(c, d, drop) for d in (1, 2, 4, 8)])
        self.down = nn.Conv1d(c, 2 * c, 4, stride=4)
        self.tail = nn.Sequential(ConvBlock(2 * c, 1, drop), ConvBlock(2 * c, 2, drop))
        self.fc = nn.Linear(2 * c, classes)

    def forward(self, x):
        x = self.tail(self.down(self.blocks(self.stem(x))))
        return self.fc(x.mean(-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=32, help="per process")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-3, help="for a global batch of 64, scaled linearly")
    ap.add_argument("--samples", type=int, default=384)
    ap.add_argument("--length", type=int, default=8000)
    ap.add_argument("--classes", type=int, default=12)
    ap.add_argument("--save", default="audio_ddp.pt")
    args = ap.parse_args()

    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)

    torch.manual_seed(100 + rank)
    ds = Tones(args.samples, args.length, args.classes, seed=5)
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, seed=5, drop_last=True)
    loader = DataLoader(ds, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = AudioNet(args.classes).to(device)
    if use_cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, device_ids=[local_rank] if use_cuda else None)
    lr = args.lr * args.batch_size * world / 64
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=args.epochs * len(loader))
    ce = nn.CrossEntropyLoss()

    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        t0 = time.time()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            opt.zero_grad(set_to_none=True)
            loss = ce(model(x), y)
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            avg = loss.detach().clone()
            dist.all_reduce(avg)
            if rank == 0:
                print(f"[{epoch}] step {step} loss {avg.item() / world:.4f}", flush=True)
        if rank == 0:
            print(f"[{epoch}] {time.time() - t0:.1f}s, {len(loader)} steps x {args.batch_size} x {world}", flush=True)

    if rank == 0:
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict(), "args": vars(args)}, args.save)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
