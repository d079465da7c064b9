"""A GPT-NeoX with random weights, trained in a loop of one's own with Hugging Face's Accelerate."""

import argparse
import json
import os
import statistics
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

import alone  # noqa: F401


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--per_device_train_batch_size", type=int, default=16)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--gradient_checkpointing", default="false", choices=["true", "false"])
    p.add_argument("--max_train_steps", type=int, default=12)
    p.add_argument("--block_size", type=int, default=896)
    p.add_argument("--layers", type=int, default=18)
    p.add_argument("--width", type=int, default=1152)
    p.add_argument("--vocabulary", type=int, default=16384)
    a = p.parse_args()
    if os.environ.get("TINY"):
        a.layers, a.width, a.vocabulary, a.block_size, a.max_train_steps = 2, 128, 256, 32, 4
    return a


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(0)
    config = GPTNeoXConfig(
        vocab_size=args.vocabulary, max_position_embeddings=args.block_size, hidden_size=args.width,
        intermediate_size=4 * args.width, num_hidden_layers=args.layers, num_attention_heads=args.width // 64, use_cache=False,
    )  # fmt: skip
    model = GPTNeoXForCausalLM(config)
    if args.gradient_checkpointing == "true":
        model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    globally = args.per_device_train_batch_size * args.gradient_accumulation_steps
    data = torch.randint(args.vocabulary, (globally * args.max_train_steps, args.block_size))
    loader = torch.utils.data.DataLoader(data, batch_size=args.per_device_train_batch_size, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    seconds, begun, step = [], time.perf_counter(), 0
    for tokens in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            accelerator.print(f"step {step} loss {loss.item():.6f}", flush=True)
            seconds.append(time.perf_counter() - begun)
            begun = time.perf_counter()
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    speed = globally / statistics.median(seconds[2:])
    accelerator.print("RESULT", json.dumps({"peak": peak, "samples_per_second": speed}), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
