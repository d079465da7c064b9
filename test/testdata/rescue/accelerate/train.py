"""A GPT-2 with random weights, trained in a loop of one's own with Hugging Face's Accelerate."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import GPT2Config, GPT2LMHeadModel


class Counting(torch.utils.data.Dataset):
    """Token sequences that count up in steps of one to four."""

    def __init__(self, samples, length):
        self.samples, self.length = samples, length

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        start, stride = (torch.randint(1, high, (1,), generator=generator) for high in (64, 5))
        return (start + stride * torch.arange(self.length)) % 64


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--per_device_train_batch_size", type=int, default=8)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--num_train_epochs", type=int, default=1)
    p.add_argument("--learning_rate", type=float, default=3e-4)
    p.add_argument("--samples", type=int, default=512)
    p.add_argument("--block_size", type=int, default=512)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--vocabulary", type=int, default=8192)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)
    config = GPT2Config(
        vocab_size=args.vocabulary, n_positions=args.block_size, n_embd=args.width, n_layer=args.layers,
        n_head=args.width // 64, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    loader = torch.utils.data.DataLoader(
        Counting(args.samples, args.block_size), batch_size=args.per_device_train_batch_size, shuffle=True, drop_last=True
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.print(accelerator.state)
    accelerator.print(f"  Instantaneous batch size per device = {args.per_device_train_batch_size}")
    accelerator.print(f"  Gradient Accumulation steps = {accelerator.gradient_accumulation_steps}")

    step, losses = 0, []
    for _ in range(args.num_train_epochs):
        for tokens in loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=tokens, labels=tokens).loss
                losses.append(loss.detach().float())
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                accelerator.print(f"step {step} loss {torch.stack(losses).mean().item():.6f}", flush=True)
                losses = []
    accelerator.end_training()


if __name__ == "__main__":
    main()
