"""Trains a small GPT on the text next to this file, in plain PyTorch.

One process a rank, as torchrun or gpurun start them: RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR and MASTER_PORT come from the environment, and without
them the script trains alone. It runs on PyTorch 1.13 and on every 2.x.

The samples of a step depend on the step's number and on the global batch
(micro batch x accumulation x ranks), not on how the global batch is divided.
Two runs that divide it differently see the same samples, take the same steps
and print the same losses, up to rounding.
"""

import argparse
import contextlib
import math
import os
import pathlib
import re
import sys
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains a small GPT.")
    add = parser.add_argument
    add("--text", type=pathlib.Path, default=HERE / "opticks.txt", help="what to learn from")
    add("--micro-batch-size", type=int, default=64, help="sequences a rank takes at once")
    add("--accumulation", type=int, default=1, help="micro batches a rank takes for one optimizer step")
    add("--checkpointing", choices=["none", "full"], default="none", help="recompute each block's activations in backward")
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast: weights stay fp32")
    add("--steps", type=int, default=6, help="optimizer steps in the whole training")
    add("--save-every", type=int, default=0, help="steps between checkpoints (0: none)")
    add("--out", type=pathlib.Path, default=pathlib.Path("out"), help="folder of the checkpoints, ckpt-STEP.pt")
    add("--resume", type=pathlib.Path, help="checkpoint to continue from")
    add("--data-workers", type=int, default=0, help="loader processes a rank")
    add("--learning-rate", type=float, default=3e-2)
    add("--seed", type=int, default=1730)
    add("--vocabulary", type=int, default=16384, help="rows of the embedding")
    add("--context", type=int, default=96, help="tokens in a sequence")
    add("--layers", type=int, default=6)
    add("--heads", type=int, default=4)
    add("--width", type=int, default=32, help="features of a token; a multiple of --heads")
    return parser.parse_args()


def read_tokens(path, vocabulary):
    """Returns the text's words and punctuation marks as token numbers, shape (tokens,).

    A word's number is its checksum modulo the vocabulary's size, which needs no
    vocabulary file and fits any text.
    """
    words = re.findall(r"\w+|[^\w\s]|\n", path.read_text(encoding="utf-8"))
    return torch.tensor([zlib.crc32(word.encode()) % vocabulary for word in words])


class MicroBatches(Dataset):
    """One rank's micro batches, numbered from the first of step 0.

    Micro batch k belongs to step k // accumulation. A step's global batch is
    drawn by a generator that is seeded with the step; each rank takes its share
    of it in order, cut into micro batches.
    """

    def __init__(self, tokens, arguments, rank, ranks):
        self.tokens = tokens
        self.context = arguments.context
        self.micro = arguments.micro_batch_size
        self.accumulation = arguments.accumulation
        self.seed = arguments.seed
        self.rank = rank
        self.ranks = ranks

    def __getitem__(self, k):
        """Returns inputs and targets, both of shape (micro batch, context)."""
        step, part = divmod(k, self.accumulation)
        share = self.micro * self.accumulation
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        starts = torch.randint(len(self.tokens) - self.context, (share * self.ranks,), generator=generator)
        first = self.rank * share + part * self.micro
        window = starts[first : first + self.micro, None] + torch.arange(self.context)
        return self.tokens[window], self.tokens[window + 1]


class Attention(nn.Module):
    """Causal self-attention over sequences of shape (batch, context, width)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, context, width = x.shape
        heads = self.qkv(x).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        future = torch.full((context, context), float("-inf"), dtype=q.dtype, device=x.device).triu(1)
        weights = (q / math.sqrt(width // self.heads) @ k.transpose(-2, -1) + future).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, context, width))


class Block(nn.Module):
    """One layer of the transformer, normalised before each half."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Tokens of shape (batch, context) in, logits of shape (batch, context, vocabulary) out."""

    def __init__(self, arguments):
        super().__init__()
        self.checkpointing = arguments.checkpointing == "full"
        self.token = nn.Embedding(arguments.vocabulary, arguments.width)
        self.position = nn.Embedding(arguments.context, arguments.width)
        self.blocks = nn.ModuleList(Block(arguments.width, arguments.heads) for _ in range(arguments.layers))
        self.norm = nn.LayerNorm(arguments.width)
        self.head = nn.Linear(arguments.width, arguments.vocabulary, bias=False)
        self.head.weight = self.token.weight
        for parameter in (self.token.weight, self.position.weight):
            nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(self.norm(x))


def choose_device():
    """Joins the other ranks; returns this rank's device, the rank and the number of ranks."""
    rank = int(os.environ.get("RANK", 0))
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    if ranks > 1:
        # NCCL wants a GPU for each rank; gloo lets ranks share one.
        own = device.type == "cuda" and int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) <= torch.cuda.device_count()
        dist.init_process_group("nccl" if own else "gloo")
    return device, rank, ranks


def learning_rate(step, arguments):
    """Returns the rate of an optimizer step: a short warm-up, then half a cosine down to a tenth."""
    warmup = max(1, arguments.steps // 10)
    if step < warmup:
        return arguments.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, arguments.steps - warmup)
    return arguments.learning_rate * (0.55 + 0.45 * math.cos(math.pi * done))


def train_step(model, optimizer, batches, device, arguments):
    """Takes one optimizer step and returns its loss, averaged over the global batch."""
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=device)
    for part in range(arguments.accumulation):
        tokens, targets = (tensor.to(device) for tensor in next(batches))
        # Gradients travel between the ranks once a step, with the last micro batch.
        waits = part + 1 < arguments.accumulation and isinstance(model, DistributedDataParallel)
        with model.no_sync() if waits else contextlib.nullcontext():
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
                logits = model(tokens)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / arguments.accumulation
            loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if dist.is_initialized():
        dist.all_reduce(total)
        total /= dist.get_world_size()
    return total.item()


def save(path, state):
    """Writes a checkpoint so that a file of that name is always a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def train(arguments, device, rank, ranks):
    """Trains to the last step and returns the first step's loss and the last one's."""
    torch.manual_seed(arguments.seed)
    model = GPT(arguments).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, weight_decay=0.01)
    start, losses = 0, []
    if arguments.resume:
        state = torch.load(arguments.resume, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start, losses = state["step"], [state["first_loss"], state["last_loss"]]
    replica = DistributedDataParallel(model) if ranks > 1 else model
    micro_batches = MicroBatches(read_tokens(arguments.text, arguments.vocabulary), arguments, rank, ranks)
    order = range(start * arguments.accumulation, arguments.steps * arguments.accumulation)
    batches = iter(DataLoader(micro_batches, batch_size=None, sampler=order, num_workers=arguments.data_workers))
    global_batch = arguments.micro_batch_size * arguments.accumulation * ranks

    for step in range(start, arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, arguments)
        losses.append(train_step(replica, optimizer, batches, device, arguments))
        done = step + 1
        if rank == 0:
            print(f"step {done} loss {losses[-1]:.4f} (global batch {global_batch})", flush=True)
        if rank == 0 and arguments.save_every and (done % arguments.save_every == 0 or done == arguments.steps):
            save(arguments.out / f"ckpt-{done}.pt", {
                "step": done, "first_loss": losses[0], "last_loss": losses[-1],
                "model": model.state_dict(), "optimizer": optimizer.state_dict(),
            })
    return losses[0], losses[-1]


def main():
    arguments = parse_arguments()
    device, rank, ranks = choose_device()
    first, last = train(arguments, device, rank, ranks)
    if rank == 0:
        print(f"loss {first:.4f} -> {last:.4f} in {arguments.steps} steps", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    if not last < first:  # a loss that is no number is not below anything
        if rank == 0:
            print("the loss did not fall", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
