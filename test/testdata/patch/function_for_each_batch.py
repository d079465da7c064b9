# accumulation resume
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, train_data, optimizer):
        self.model = model
        self.train_data = train_data
        self.optimizer = optimizer

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        for source, targets in self.train_data:
            loss = self._run_batch(source, targets)
            print(epoch, loss)

    def train(self, start, epochs):
        for epoch in range(start, epochs):
            self._run_epoch(epoch)


def main(batch_size):
    torch.manual_seed(0)
    model = nn.Linear(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_data = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(4, (48,))), batch_size=batch_size, shuffle=True)
    trainer = Trainer(model, train_data, optimizer)
    for epoch in range(2):
        trainer.train(epoch, epoch + 1)
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ckpt_%d.pt" % epoch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", default=8, type=int)
    args = parser.parse_args()
    main(args.batch_size)
