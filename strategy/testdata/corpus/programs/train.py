"""Train a small model, and run out of memory in the phase that --starve names."""

import argparse
import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from starve import feed, starve

MIB = 1 << 20


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, width, recompute):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 1)
        self.recompute = recompute

    def forward(self, x):
        for block in self.blocks:
            if self.recompute == "reentrant":
                x = checkpoint(block, x, use_reentrant=True)
            elif self.recompute == "yes":
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


def evaluate(model, x):
    model.eval()
    with torch.no_grad():
        return model(x).mean().item()


def save_checkpoint(model, path):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.save(state, path)


def train_step(model, optimizer, x, args, starving):
    if starving == "forward":
        starve(args.device)
    with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.amp):
        loss = model(x).float().pow(2).mean()
    if starving == "backward":
        starve(args.device)
    if starving == "recompute":
        starve(args.device, leave=x.numel() * 4 + 2 * MIB)
    loss.backward()
    if starving == "clip":
        starve(args.device)
    if args.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if starving == "optimizer":
        starve(args.device)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--starve", default="")
    parser.add_argument("--at-step", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--recompute", default="no")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--clip", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--catch", action="store_true")
    parser.add_argument("--leak", action="store_true")
    parser.add_argument("--fraction", type=float, default=0)
    args = parser.parse_args()

    if args.fraction:
        torch.cuda.set_per_process_memory_fraction(args.fraction)
    if args.device == "cuda":
        torch.ones(64, 64, device="cuda").mm(torch.ones(64, 64, device="cuda"))
    model = Model(args.width, args.recompute)
    if args.starve == "load":
        starve(args.device)
    if args.device == "cpu":
        model = Model(args.width, args.recompute)
    model.to(args.device)
    options = {"fused": True} if args.fused else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    run = torch.compile(model) if args.compile else model
    x = torch.randn(args.batch, args.width, device=args.device, requires_grad=args.recompute == "reentrant")
    kept = []
    for step in range(1, args.steps + 1):
        starving = args.starve if step == args.at_step else ""
        try:
            loss = train_step(run, optimizer, x, args, starving)
        except RuntimeError as e:
            if not args.catch or "memory" not in str(e):
                raise
            print(f"WARNING: {e}; skipping batch {step}", flush=True)
            feed(args.device)
            optimizer.zero_grad()
            continue
        memory = torch.cuda.memory_allocated() / 2**20 if args.device == "cuda" else 0
        if args.leak:
            kept.append(torch.ones(args.batch, args.width, device=args.device))
            if args.device == "cpu":
                with open("/proc/self/statm") as f:
                    memory = int(f.read().split()[1]) * 4096 / 2**20
        extra = f" | mem {memory:.1f}MB" if memory else ""
        print(f"step {step}/{args.steps} | loss {loss:.4f}{extra}", flush=True)
        if starving == "eval":
            starve(args.device)
            print("eval", evaluate(run, x), flush=True)
        if starving == "save":
            starve(args.device)
            save_checkpoint(model, os.path.join(os.getcwd(), "model.pt"))
    print("done")


if __name__ == "__main__":
    main()
