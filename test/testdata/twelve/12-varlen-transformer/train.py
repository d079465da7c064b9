import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from corpus import IGNORE, TAGS, VOCAB, Documents, collate
from model import Tagger


def inverse_sqrt(step: int, warmup: int = 8) -> float:
    step += 1
    return min(step / warmup, (warmup / step) ** 0.5)


def train(batch_size: int, epochs: int, lr: float, out: Path) -> None:
    torch.manual_seed(21)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # in filing order on purpose: neighbouring reports are alike, keeps padding small
    loader = DataLoader(Documents(), batch_size=batch_size, shuffle=False, collate_fn=collate)
    model = Tagger(VOCAB, TAGS).to(device)
    optim = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-9)
    sched = torch.optim.lr_scheduler.LambdaLR(optim, inverse_sqrt)

    step = 0
    for epoch in range(epochs):
        model.train()
        for ids, tags in loader:
            ids, tags = ids.to(device), tags.to(device)
            logits = model(ids)
            loss = F.cross_entropy(logits.transpose(1, 2), tags, ignore_index=IGNORE)
            optim.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
            sched.step()
            step += 1
            print(f"epoch {epoch} step {step} len {ids.shape[1]} loss {loss.item():.4f}", flush=True)

    out.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "step": step}, out)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--bs", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--out", type=Path, default=Path("ckpt/tagger.pt"))
    a = ap.parse_args()
    train(a.bs, a.epochs, a.lr, a.out)
