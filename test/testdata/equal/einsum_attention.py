import argparse
import torch
import torch.nn.functional as F
from torch import einsum, nn
from torch.utils.data import DataLoader, TensorDataset


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.o = h, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.h, d // self.h).unbind(2)
        att = einsum("bihd,bjhd->bhij", q, k) * (d // self.h) ** -0.5
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        att = att.masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.o(einsum("bhij,bjhd->bihd", att, v).reshape(b, n, d))
        return x + self.ff(self.n2(x))


class LM(nn.Module):
    def __init__(self, vocab=40, d=16, length=10):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(length, d)
        self.layers = nn.Sequential(Layer(d, 2), Layer(d, 2))
        self.lm_head = nn.Linear(d, vocab)

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos.weight[: idx.size(1)]
        logits = self.lm_head(self.layers(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


parser = argparse.ArgumentParser()
parser.add_argument("--device_batch_size", type=int, default=8)
parser.add_argument("--grad_accum", type=int, default=2)
args = parser.parse_args()
torch.manual_seed(0)
tokens = torch.randint(40, (64, 11))
train_loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=args.device_batch_size, shuffle=True, drop_last=True)
model = LM()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
it = iter(train_loader)
for step in range(2):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(args.grad_accum):
        inp, tgt = next(it)
        _, loss = model(inp, tgt)
        loss = loss / args.grad_accum
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
