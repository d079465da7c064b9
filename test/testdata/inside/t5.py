# An encoder and a decoder, in a loop of one's own.
import json
import os
import time

import torch
from transformers import T5Config, T5ForConditionalGeneration

import alone  # noqa: F401

torch.manual_seed(0)
model = T5ForConditionalGeneration(T5Config(vocab_size=8192, d_model=1024, d_ff=4096, num_layers=12, num_heads=16, d_kv=64, decoder_start_token_id=0)).cuda()
if os.environ.get("OWN"):
    model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, seconds = [], []
for step in range(8):
    ids, labels = torch.randint(8192, (16, 512), device="cuda"), torch.randint(8192, (16, 256), device="cuda")
    begun = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
