# An encoder and a decoder, in a loop of one's own without any setting. TINY=1 makes it small enough for a CPU.
import json
import os
import statistics
import time

import torch
from transformers import T5Config, T5ForConditionalGeneration

import alone  # noqa: F401

RECOMPUTE = False
BATCH, SOURCE, TARGET, WIDTH, DEPTH, STEPS = 16, 640, 320, 896, 12, 12
if os.environ.get("TINY"):
    SOURCE, TARGET, WIDTH, DEPTH, STEPS = 16, 8, 64, 2, 4

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = T5Config(
    vocab_size=12288, d_model=WIDTH, d_ff=4 * WIDTH, num_layers=DEPTH, num_heads=WIDTH // 64, d_kv=64,
    decoder_start_token_id=0, use_cache=False,
)  # fmt: skip
model = T5ForConditionalGeneration(config).to(device)
if RECOMPUTE:
    model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
seconds = []
for step in range(STEPS):
    begun = time.perf_counter()
    ids, labels = torch.randint(8192, (BATCH, SOURCE)).to(device), torch.randint(8192, (BATCH, TARGET)).to(device)
    with torch.autocast(device, torch.bfloat16):
        loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds.append(time.perf_counter() - begun)
    print(f"step {step} loss {loss.item():.6f}", flush=True)
peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
print("RESULT", json.dumps({"peak": peak, "samples_per_second": BATCH / statistics.median(seconds[2:])}), flush=True)
