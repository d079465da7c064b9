# accumulation
# note: the batch size is not certain
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", default=8, type=int)
parser.add_argument("--print-freq", default=2, type=int)


def main():
    args = parser.parse_args()
    args.batch_size = int(args.batch_size / max(torch.cuda.device_count(), 1))
    torch.manual_seed(0)
    train_loader = DataLoader(TensorDataset(torch.randn(44, 4), torch.randint(3, (44,))), batch_size=args.batch_size, shuffle=True)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for epoch in range(2):
        train(train_loader, model, nn.CrossEntropyLoss(), optimizer, epoch, args)


def train(train_loader, model, criterion, optimizer, epoch, args):
    for i, (images, target) in enumerate(train_loader):
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            print(epoch, i, loss.item())


if __name__ == "__main__":
    main()
