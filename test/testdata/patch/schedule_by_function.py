# accumulation
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_one_epoch(model, loader, optimizer, scheduler, epoch):
    losses = []
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
    print(epoch, losses, sum(losses) / len(losses))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randn(48, 1)), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, steps_per_epoch=steps, epochs=args.num_epochs)
    for epoch in range(args.num_epochs):
        train_one_epoch(model, loader, optimizer, scheduler, epoch)


if __name__ == "__main__":
    main()
