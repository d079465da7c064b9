# batch accumulation
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 8
EPOCHS = 3

torch.manual_seed(0)
train_data = TensorDataset(torch.randn(48, 10), torch.randint(4, (48,)))
train_loader = DataLoader(train_data, batch_size=BATCH_SIZE, shuffle=True)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    running_loss = 0.0
    for i, data in enumerate(train_loader, 0):
        inputs, labels = data
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        if i % 2 == 1:
            print(f"[{epoch + 1}, {i + 1}] loss: {running_loss / 2}")
            running_loss = 0.0
print(sum(p.sum().item() for p in model.parameters()))
