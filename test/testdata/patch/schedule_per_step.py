# batch accumulation
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size = 8
epochs = 2
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=batch_size, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
total = epochs * len(loader)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, 1 - s / total))
for epoch in range(epochs):
    total_loss = 0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        total_loss += loss.item()
        print(loss.item(), scheduler.get_last_lr()[0])
    print(epoch, total_loss / len(loader))
