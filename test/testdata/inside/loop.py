# A loop of one's own round an Accelerator.
import json
import os
import time

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForMaskedLM

import alone  # noqa: F401

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16")
model = BertForMaskedLM(BertConfig(vocab_size=8192, hidden_size=1024, num_hidden_layers=16, num_attention_heads=16, intermediate_size=4096))
if os.environ.get("OWN"):
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = torch.randint(8192, (256, 512))
loader = torch.utils.data.DataLoader(data, batch_size=32)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
losses, seconds = [], []
for step, ids in enumerate(loader):
    begun = time.perf_counter()
    loss = model(input_ids=ids, labels=ids).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
