"""A loop of one's own for the models of models.py. TINY=1 makes them small enough for a CPU."""

import argparse
import json
import os
import statistics
import time

import torch

import alone  # noqa: F401
from models import create


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--micro", type=int, required=True)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--ckpt", choices=["on", "off"], default="off")
    p.add_argument("--steps", type=int, default=12)
    a = p.parse_args()
    tiny = bool(os.environ.get("TINY"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = create(a.model, tiny).to(device)
    if a.ckpt == "on":
        model.switch(True)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for step in range(4 if tiny else a.steps):
        begun = time.perf_counter()
        mean = 0.0
        for _ in range(a.accum):
            batch = model.batch(a.micro, device)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(*batch) / a.accum
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
