#!/usr/bin/env python
# coding: utf-8

# # VAE on synthetic shapes
# 
# Second try, this time with batch norm. The stream makes the pictures while we train, so there is nothing to download.

# In[1]:


import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

# get_ipython().run_line_magic('matplotlib', 'inline')


# In[2]:


torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
device


# In[3]:


BATCH_SIZE = 64
EPOCHS = 2
N_PER_EPOCH = 384
IMG_SIZE = 64
LATENT = 32
LR = 1e-3
KL_WEIGHT = 0.05


# ## Data

# In[5]:


class ShapeStream(IterableDataset):
    def __init__(self, n, size, seed):
        self.n = n
        self.size = size
        self.seed = seed
        self.epoch = 0

    def __iter__(self):
        rng = np.random.RandomState(self.seed + self.epoch)
        yy, xx = np.mgrid[:self.size, :self.size].astype(np.float32) / self.size
        for _ in range(self.n):
            img = np.zeros((3, self.size, self.size), np.float32)
            for _ in range(rng.randint(1, 4)):
                cx, cy, r = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8), rng.uniform(0.08, 0.25)
                if rng.rand() < 0.5:
                    m = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
                else:
                    m = (abs(xx - cx) < r) & (abs(yy - cy) < r)
                img[:, m] = rng.uniform(0.2, 1.0, size=(3, 1))
            yield torch.from_numpy(img)


# In[6]:


stream = ShapeStream(N_PER_EPOCH, IMG_SIZE, seed=0)
loader = DataLoader(stream, batch_size=BATCH_SIZE)
x = next(iter(loader))
print(x.shape, x.min().item(), x.max().item())


# ## Model

# In[8]:


def down(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1),
        nn.Conv2d(cout, cout, 4, stride=2, padding=1), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1),
    )


def up(cin, cout):
    return nn.Sequential(
        nn.ConvTranspose2d(cin, cin, 4, stride=2, padding=1), nn.BatchNorm2d(cin), nn.LeakyReLU(0.1),
        nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1),
    )


class VAE(nn.Module):
    def __init__(self, ch=24, latent=LATENT):
        super().__init__()
        self.enc = nn.Sequential(down(3, ch), down(ch, 2 * ch), down(2 * ch, 4 * ch), nn.Flatten(), nn.Dropout(0.1))
        self.side = IMG_SIZE // 8
        feat = 4 * ch * self.side ** 2
        self.mu = nn.Linear(feat, latent)
        self.logvar = nn.Linear(feat, latent)
        self.fc = nn.Linear(latent, feat)
        self.dec = nn.Sequential(up(4 * ch, 2 * ch), up(2 * ch, ch), up(ch, ch), nn.Conv2d(ch, 3, 3, padding=1))
        self.ch = ch

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        h = self.fc(z).view(-1, 4 * self.ch, self.side, self.side)
        return self.dec(h), mu, logvar


model = VAE().to(device)
sum(p.numel() for p in model.parameters())


# In[9]:


def vae_loss(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction='sum') / x.shape[0]
    kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(1).mean()
    return rec + KL_WEIGHT * kl, rec, kl


optimizer = torch.optim.RMSprop(model.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.7)


# ## Train

# In[12]:


history = []
model.train()
for epoch in range(EPOCHS):
    stream.epoch = epoch
    for x in loader:
        x = x.to(device)
        logits, mu, logvar = model(x)
        loss, rec, kl = vae_loss(logits, x, mu, logvar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        print(f'epoch {epoch}  step {len(history):3d}  loss {loss.item():9.2f}  rec {rec.item():9.2f}  kl {kl.item():7.2f}', flush=True)


# In[13]:


np.mean(history[-10:])


# In[14]:


# plt.plot(history); plt.yscale('log')


# In[15]:


model.eval()
with torch.no_grad():
    sample = torch.sigmoid(model.dec(model.fc(torch.randn(8, LATENT, device=device)).view(-1, 4 * model.ch, model.side, model.side)))
print('sample', sample.shape, sample.mean().item())


# In[16]:


torch.save({'model': model.state_dict(), 'history': history}, 'vae_shapes.pt')
