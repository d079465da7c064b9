"""A ConvNeXt of timm in a loop of one's own. TINY=1 makes it small enough for a CPU."""

import argparse
import json
import os
import statistics
import time

import timm
import torch

import alone  # noqa: F401


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--micro", type=int, default=128)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--ckpt", choices=["on", "off"], default="off")
    p.add_argument("--steps", type=int, default=12)
    a = p.parse_args()
    size, name, steps = 224, "convnext_base", a.steps
    if os.environ.get("TINY"):
        size, name, steps = 32, "convnext_atto", 4
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=100).to(device)
    model.set_grad_checkpointing(a.ckpt == "on")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for step in range(steps):
        begun = time.perf_counter()
        mean = 0.0
        for _ in range(a.accum):
            images, labels = torch.randn(a.micro, 3, size, size, device=device), torch.randint(100, (a.micro,), device=device)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = torch.nn.functional.cross_entropy(model(images), labels) / a.accum
            loss.backward()
            mean += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
        print(f"step {step} loss {mean:.6f}", flush=True)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    speed = a.micro * a.accum / statistics.median(seconds[2:])
    print("RESULT", json.dumps({"peak": peak, "samples_per_second": speed}), flush=True)


if __name__ == "__main__":
    main()
