# accumulation
# resume: it writes no checkpoint
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(F.log_softmax(output, dim=1), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print("Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {}".format(
                epoch, batch_idx * len(data), len(train_loader.dataset), 100. * batch_idx / len(train_loader), loss.item()))
            if args.dry_run:
                break


def main():
    parser = argparse.ArgumentParser(description="an example")
    parser.add_argument("--batch-size", type=int, default=8, metavar="N", help="input batch size for training")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--dry-run", action="store_true", default=False)
    parser.add_argument("--log-interval", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1)
    train_kwargs = {"batch_size": args.batch_size}
    train_kwargs.update({"shuffle": True})
    train_loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), **train_kwargs)
    model = nn.Linear(10, 4)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, "cpu", train_loader, optimizer, epoch)
        scheduler.step()


if __name__ == "__main__":
    main()
