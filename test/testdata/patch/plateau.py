# batch accumulation
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class tqdm(list):
    def set_postfix(self, values):
        pass


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=8, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for epoch in range(2):
    epoch_loss, n_batches = 0.0, 0
    bar = tqdm(loader)
    for x, y in bar:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, p in model.named_parameters():
            bar.set_postfix({name: p.detach().mean().item()})
        epoch_loss += loss.item()
        n_batches += 1
        print(loss.item())
    scheduler.step(epoch_loss / n_batches)
