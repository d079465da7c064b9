"""A GPT-2 with random weights, trained with DeepSpeed on the bytes of a text.

Everything about memory is in the DeepSpeed JSON that the command names; the
script reads none of it.
"""

import argparse
import pathlib

import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

TEXT = pathlib.Path(__file__).resolve().parent.parent / "quickstart" / "opticks.txt"


def batches(data, sequence, samples, seed):
    """Endless batches; the same seed gives the same samples in the same order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - sequence - 1, (samples,), generator=generator)
        yield torch.stack([data[s : s + sequence] for s in starts])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    arguments = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256, n_positions=arguments.sequence, n_embd=arguments.width, n_layer=arguments.layers,
        n_head=arguments.width // 64, use_cache=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    engine, _, _, _ = deepspeed.initialize(args=arguments, model=model, model_parameters=model.parameters())
    data = torch.tensor(list(TEXT.read_bytes()), dtype=torch.long)
    stream = batches(data, arguments.sequence, engine.train_micro_batch_size_per_gpu(), torch.distributed.get_rank())

    first = last = None
    for step in range(1, arguments.steps + 1):
        loss = None
        for _ in range(engine.gradient_accumulation_steps()):
            tokens = next(stream).to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        last = loss.item()
        first = last if first is None else first
        if torch.distributed.get_rank() == 0:
            print(f"step {step} loss {last:.4f}", flush=True)
    if torch.distributed.get_rank() == 0:
        print(f"trained: loss {first:.4f} -> {last:.4f}, ZeRO stage {engine.zero_optimization_stage()}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
