# A vision tower, a projector and a language model.
import json
import os
import time

import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

import alone  # noqa: F401

torch.manual_seed(0)
vision = CLIPVisionConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=224, patch_size=16, projection_dim=768)
text = LlamaConfig(vocab_size=8192, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, max_position_embeddings=1024)
model = LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text, image_token_index=8191, vision_feature_select_strategy="default")).cuda()
if os.environ.get("OWN"):
    model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, seconds = [], []
for step in range(8):
    ids = torch.randint(8190, (16, 512), device="cuda")
    ids[:, :196] = 8191
    images = torch.randn(16, 3, 224, 224, device="cuda")
    begun = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, pixel_values=images, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
