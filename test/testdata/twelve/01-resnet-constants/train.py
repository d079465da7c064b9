"""Classify the (fake) parts-inspection crops with a little ResNet."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

# ---------------------------------------------------------------- settings
SEED = 1234
IMG = 64
N_CLASSES = 8
N_TRAIN = 360
N_VAL = 128
BATCH_SIZE = 72
EPOCHS = 2
LR = 0.08
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
PRINT_EVERY = 1
CKPT = "resnet_parts.pt"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# --------------------------------------------------------------------------

torch.manual_seed(SEED)
np.random.seed(SEED)


class PartsDataset(Dataset):
    """Oriented gratings + noise, uint8 in memory, normalised on access."""

    def __init__(self, n, seed, augment):
        rng = np.random.RandomState(seed)
        self.y = rng.randint(0, N_CLASSES, size=n)
        yy, xx = np.mgrid[0:IMG, 0:IMG] / IMG
        imgs = np.zeros((n, 3, IMG, IMG), dtype=np.uint8)
        for k in range(n):
            theta = np.pi * self.y[k] / N_CLASSES
            phase = rng.rand() * 6.28
            wave = np.sin(2 * np.pi * 5 * (xx * np.cos(theta) + yy * np.sin(theta)) + phase)
            for c in range(3):
                img = 127 + 50 * wave * (0.5 + rng.rand()) + 30 * rng.randn(IMG, IMG)
                imgs[k, c] = np.clip(img, 0, 255)
        self.x = imgs
        self.augment = augment

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i]).float().div_(127.5).sub_(1.0)
        if self.augment and torch.rand(()) < 0.5:
            # shift a bit, a flip would change the class
            x = torch.roll(x, shifts=int(torch.randint(-6, 7, ())), dims=2)
        return x, int(self.y[i])


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Sequential()
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.short(x))


class SmallResNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.layer1 = nn.Sequential(Block(width, width), Block(width, width))
        self.layer2 = nn.Sequential(Block(width, width * 2, 2))
        self.layer3 = nn.Sequential(Block(width * 2, width * 4, 2))
        self.fc = nn.Linear(width * 4, N_CLASSES)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(x.mean((2, 3)))


train_loader = DataLoader(PartsDataset(N_TRAIN, SEED, True), batch_size=BATCH_SIZE, shuffle=True)
val_loader = DataLoader(PartsDataset(N_VAL, SEED + 1, False), batch_size=32)

model = SmallResNet().to(DEVICE)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = torch.optim.SGD(
    model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True
)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=LR, epochs=EPOCHS, steps_per_epoch=len(train_loader)
)

print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters, "
      f"{len(train_loader)} steps per epoch")

step = 0
t0 = time.time()
for epoch in range(EPOCHS):
    model.train()
    for x, y in train_loader:
        x, y = x.to(DEVICE), y.to(DEVICE)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step % PRINT_EVERY == 0:
            print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f} "
                  f"lr {scheduler.get_last_lr()[0]:.4f}", flush=True)

    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in val_loader:
            correct += (model(x.to(DEVICE)).argmax(1).cpu() == y).sum().item()
    print(f"== epoch {epoch} val acc {correct / N_VAL:.3f} ({time.time() - t0:.1f}s)", flush=True)

torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, CKPT)
print("saved", CKPT)
