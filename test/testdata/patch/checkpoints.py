# batch accumulation resume
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4
os.makedirs("checkpoints", exist_ok=True)
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=8)
model = nn.Linear(10, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, i, loss.item())
    scheduler.step()
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"checkpoints/epoch_{epoch}.pt")
