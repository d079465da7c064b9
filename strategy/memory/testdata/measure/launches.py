"""Measures plans with small micro batches on one GPU, with the host's times for launches, as gpurun's probe measures them:
the rows of h100-launches.jsonl. README.md says what the keys mean."""

import argparse
import gc
import importlib
import json
import os
import statistics
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../../../launcher/hook"))
blocks, launches, marks, meters = (importlib.import_module("inside." + name) for name in ("model.blocks", "observe.launches", "observe.marks", "base.meters"))

# By model: the class of transformers, its configuration, and the lengths of input and labels; or timm's name.
MODELS = {
    "qwen3-0.6b": ("Qwen3ForCausalLM", {
        "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 3072,
        "vocab_size": 151936, "max_position_embeddings": 2048, "head_dim": 128, "tie_word_embeddings": True}, 512, 512),
    "t5-base": ("T5ForConditionalGeneration", {
        "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "feed_forward_proj": "gated-gelu", "vocab_size": 32128,
        "decoder_start_token_id": 0}, 512, 128),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}, 512, 512),
    "vit_base_patch16_224": None,
    "convnext_base": None,
}


def build(name, device):
    """Return the model, and a function that makes a batch: arguments, and the loss of an output."""
    if MODELS[name] is None:
        model = importlib.import_module("timm").create_model(name, num_classes=1000).to(device)

        def images(n):
            labels = torch.randint(0, 1000, (n,), device=device)
            return (torch.randn(n, 3, 224, 224, device=device),), {}, lambda output: torch.nn.functional.cross_entropy(output, labels)

        return model, images
    kind, config, length, labels = MODELS[name]
    transformers = importlib.import_module("transformers")
    kind = getattr(transformers, kind)
    with torch.device(device):
        model = kind(kind.config_class(**config, use_cache=False)).float()

    def texts(n):
        ids = torch.randint(0, config["vocab_size"], (n, length), device=device)
        return (), {"input_ids": ids, "labels": ids[:, :labels].contiguous()}, lambda output: output.loss

    return model, texts


def checkpoint(model, on):
    if not hasattr(model, "gradient_checkpointing_enable"):
        model.set_grad_checkpointing(on)
    elif on:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_disable()


def clear():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def measure(model, batch, plan, base, steps):
    """Return a row: each call of the model is followed, of which the first is cold."""
    meter, allocated = meters.of(torch.device("cuda", 0)), torch.cuda.memory_allocated
    row, times, lists = dict(plan, static_load=allocated() - base), [], blocks.find(model)
    follows = launches.Launches(meter)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step in range(steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for call in range(plan["accum"]):
            args, kwargs, loss = batch(plan["micro"])
            followed = call == 0 and marks.Marks(lists, lambda: 0 if step else meter.read()[0], lambda: None, follows)
            with torch.autocast("cuda", torch.bfloat16, enabled=plan["amp"] == "bf16"):
                if followed:
                    follows.begin(lists)
                output = model(*args, **kwargs)
                if followed:
                    follows.end(output)
                    followed.over()
                value = loss(output) / plan["accum"]
            row.setdefault("after_forward", allocated() - base)
            del output
            value.backward()
        row.setdefault("peak_before_optim", torch.cuda.max_memory_allocated() - base)
        optimizer.step()
        row.setdefault("after_step1", allocated() - base)
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        if step == 0:
            cold = follows.report()
    found = follows.report()
    row.update(peak_allocated=torch.cuda.max_memory_allocated() - base, peak_reserved=torch.cuda.max_memory_reserved(), step_s=statistics.median(times[1:]))
    row["samples_per_s"] = plan["micro"] * plan["accum"] / row["step_s"]
    row["launch"] = {"cold_s": cold["forward_seconds"], "forward_s": found["forward_seconds"], "backward_s": found.get("backward_seconds", 0)}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", help="the file of the rows; the lines of the models are written by hand")
    parser.add_argument("--seconds", type=float, default=400, help="no model's row is begun after its part of it")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--micros", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    given = parser.parse_args()
    end = time.time() + given.seconds
    with open(given.out, "a") as out:
        for i, name in enumerate(MODELS):
            until = time.time() + (end - time.time()) / (len(MODELS) - i)
            clear()
            base, slow = torch.cuda.memory_allocated(), set()
            model, batch = build(name, "cuda")
            model.train()
            plans = [(amp, micro, ckpt, accum) for amp in ("bf16", "off") for micro in given.micros for ckpt in ("none", "full") for accum in (1, 2)]
            for amp, micro, ckpt, accum in plans:
                if time.time() > until or (amp, ckpt) in slow:
                    continue
                checkpoint(model, ckpt == "full")
                plan = {"model": name, "micro": micro, "accum": accum, "params": "fp32", "amp": amp, "ckpt": ckpt, "optim": "adamw", "attn": "sdpa"}
                try:
                    row = measure(model, batch, dict(plan, n_params=sum(p.numel() for p in model.parameters())), base, given.steps)
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                except torch.OutOfMemoryError:
                    slow.add((amp, ckpt))
                model.zero_grad(set_to_none=True)
                clear()


if __name__ == "__main__":
    main()
