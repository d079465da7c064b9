import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.ReLU())
        self.mid = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(16, classes, 1)

    def forward(self, x):
        d = self.down(x)
        return self.out(torch.cat([d, self.up(self.mid(d).relu())], dim=1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch_size", type=int, default=4)
    p.add_argument("--accumulation_steps", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(0)
    train_loader = DataLoader(TensorDataset(torch.rand(16, 3, 8, 8), torch.randint(4, (16, 8, 8))), batch_size=args.batch_size, shuffle=True)
    model, scaler = UNet(4), torch.cuda.amp.GradScaler(enabled=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(1):
        for idx, (img, mask) in enumerate(train_loader):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                pred = model(img)
                loss = nn.functional.cross_entropy(pred, mask) / args.accumulation_steps
            scaler.scale(loss).backward()
            if (idx + 1) % args.accumulation_steps == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
