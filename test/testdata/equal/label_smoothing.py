import argparse
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("-b", "--batch-size", default=16, type=int)
    ap.add_argument("--accumulation-steps", default=2, type=int)
    ap.add_argument("--smoothing", default=0.1, type=float)
    return ap.parse_args()


def train_one_epoch(model, loader, loss_fn, opt, accumulation_steps):
    for n, (images, target) in enumerate(loader):
        logits = model(images)
        loss = loss_fn(logits, target) / accumulation_steps
        loss.backward()
        if (n + 1) % accumulation_steps == 0:
            opt.step()
            opt.zero_grad()


if __name__ == "__main__":
    a = get_args()
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    ds = TensorDataset(torch.randn(128, 3, 8, 8), torch.randint(5, (128,)))
    dl = DataLoader(ds, a.batch_size, shuffle=True, drop_last=True)
    train_one_epoch(net, dl, nn.CrossEntropyLoss(label_smoothing=a.smoothing), optim.SGD(net.parameters(), 0.05, momentum=0.9), a.accumulation_steps)
