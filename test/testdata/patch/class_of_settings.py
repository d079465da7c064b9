# batch accumulation
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Config:
    lr = 0.1
    batch_size = 8
    epochs = 2


cfg = Config()


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)

    def run(self):
        for epoch in range(cfg.epochs):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                print(epoch, loss.item())


torch.manual_seed(0)
train_loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=cfg.batch_size, shuffle=True)
Trainer(nn.Linear(10, 1), train_loader).run()
