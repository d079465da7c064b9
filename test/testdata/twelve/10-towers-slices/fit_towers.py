# match sensor traces with the event strings that were logged next to them (clip style)
import sys
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

rng = np.random.default_rng(77)
torch.manual_seed(77)


def make_pairs(n, T=512, L=48, vocab=500):
    z = rng.normal(size=(n, 6)).astype("float32")                     # hidden state shared by both views
    t = np.linspace(0, 1, T, dtype="float32")
    basis = np.stack([np.sin(2 * np.pi * (k + 1) * 3 * t) for k in range(6)])
    traces = z @ basis + 0.5 * rng.normal(size=(n, T)).astype("float32")
    bins = np.clip(((z + 3) / 6 * 40).astype(int), 0, 39) + 40 * np.arange(6)  # 240 informative tokens
    events = rng.integers(240, vocab, size=(n, L))
    where = rng.random((n, L)).argsort(1)[:, :12]
    np.put_along_axis(events, where, np.tile(bins, (1, 2)), 1)
    return traces[:, None, :], events


class TraceTower(nn.Module):
    def __init__(self, c=32, out=64):
        super().__init__()
        layers, cin = [], 1
        for i in range(5):
            layers += [nn.Conv1d(cin, c, 5, padding=2), nn.BatchNorm1d(c), nn.GELU()]
            if i in (2, 3):
                layers += [nn.AvgPool1d(2)]
            cin = c
        self.net = nn.Sequential(*layers)
        self.proj = nn.Linear(c * 16, out)

    def forward(self, x):
        h = self.net(x)
        # 16 coarse time bins, the phase matters so no global pooling
        return self.proj(F.adaptive_avg_pool1d(h, 16).flatten(1))


class EventTower(nn.Module):
    def __init__(self, vocab=500, d=64, out=64, drop=0.1):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.ff1 = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(drop), nn.Linear(4 * d, d))
        self.ff2 = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(drop), nn.Linear(4 * d, d))
        self.proj = nn.Linear(d, out)

    def forward(self, ids):
        h = self.emb(ids)
        h = h + self.ff1(h)
        h = h + 2 * h.mean(1, keepdim=True)
        h = h + self.ff2(h)
        return self.proj(h.mean(1))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = TraceTower(), EventTower()
        self.log_temp = nn.Parameter(torch.tensor(np.log(1 / 0.1), dtype=torch.float32))

    def forward(self, trace, ids):
        u, v = F.normalize(self.a(trace), dim=-1), F.normalize(self.b(ids), dim=-1)
        sim = self.log_temp.exp() * u @ v.t()
        target = torch.arange(len(u), device=u.device)
        return (F.cross_entropy(sim, target) + F.cross_entropy(sim.t(), target)) / 2, sim


traces, events = make_pairs(2328)
n_train = 2048
batch = 512
n_epochs = 4
lr = 2e-3

model = Pair()
opt = torch.optim.Adam(model.parameters(), lr=lr)
it = 0
for epoch in range(n_epochs):
    model.train()
    perm = rng.permutation(n_train)
    losses = []
    for i in range(0, n_train, batch):
        idx = perm[i:i + batch]
        x = torch.from_numpy(traces[idx])
        ids = torch.from_numpy(events[idx])
        loss, _ = model(x, ids)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        it += 1
        print("it %d loss %.4f" % (it, loss.item()))
        sys.stdout.flush()
    for g in opt.param_groups:
        g["lr"] *= 0.7
    model.eval()
    with torch.no_grad():
        _, sim = model(torch.from_numpy(traces[n_train:]), torch.from_numpy(events[n_train:]))
        top1 = (sim.argmax(1) == torch.arange(len(sim))).float().mean().item()
    print("epoch %d mean loss %.4f  held-out top1 %.3f (of %d)" % (epoch, np.mean(losses), top1, len(sim)))

torch.save(model.state_dict(), "towers.pt")
