# A diffusion model's UNet, as a training loop of one's own has it.
import json
import os
import time

import torch
from diffusers import DDPMScheduler, UNet2DModel

import alone  # noqa: F401

torch.manual_seed(0)
model = UNet2DModel(sample_size=64, in_channels=3, out_channels=3, block_out_channels=(128, 256, 512), layers_per_block=2,
                    down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")).cuda()
if os.environ.get("OWN"):
    model.enable_gradient_checkpointing()
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, seconds = [], []
for step in range(8):
    clean, noise = torch.randn(64, 3, 64, 64, device="cuda"), torch.randn(64, 3, 64, 64, device="cuda")
    at = torch.randint(1000, (64,), device="cuda")
    begun = time.perf_counter()
    loss = torch.nn.functional.mse_loss(model(scheduler.add_noise(clean, noise, at), at).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - begun)
print("RESULT", json.dumps({"losses": losses, "seconds": min(seconds[3:]), "each": seconds, "peak": torch.cuda.max_memory_allocated()}))
