import logging
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger(__name__)


class LSTMLM(nn.Module):
    def __init__(self, vocab_size, emb_dim, hidden, layers, dropout):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb_dim)
        self.lstm = nn.LSTM(emb_dim, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, vocab_size)

    def forward(self, x):
        h, _ = self.lstm(self.drop(self.emb(x)))
        return self.out(self.drop(h))


def build_split(cfg: DictConfig, n: int, seed: int) -> TensorDataset:
    """Sentences that walk around a ring of words with a stride which depends on the sentence."""
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(0, cfg.vocab_size, (n, 1), generator=g)
    stride = torch.randint(1, 4, (n, 1), generator=g)
    t = torch.arange(cfg.seq_len + 1)[None]
    seq = (start // 20 + stride * t) % 200
    noise = torch.rand(seq.shape, generator=g) < 0.1
    seq = torch.where(noise, torch.randint(0, cfg.vocab_size, seq.shape, generator=g), seq)
    return TensorDataset(seq[:, :-1].contiguous(), seq[:, 1:].contiguous())


def run_epoch(model, loader, device, cfg, optimizer=None, epoch=0, global_step=0):
    criterion = nn.CrossEntropyLoss()
    model.train(optimizer is not None)
    total, count = 0.0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        with torch.set_grad_enabled(optimizer is not None):
            logits = model(x)
            loss = criterion(logits.flatten(0, 1), y.flatten())
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), cfg.trainer.clip)
            optimizer.step()
            global_step += 1
            if global_step % cfg.trainer.log_every == 0:
                log.info("epoch %d step %d loss %.4f", epoch, global_step, loss.item())
        total += loss.item() * len(x)
        count += len(x)
    return total / max(count, 1), global_step


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float:
    log.info("\n%s", OmegaConf.to_yaml(cfg))
    torch.manual_seed(cfg.seed)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if cfg.device == "auto" else cfg.device

    train_loader = DataLoader(build_split(cfg.data, cfg.data.n_train, cfg.seed), **cfg.data.loader)
    valid_loader = DataLoader(build_split(cfg.data, cfg.data.n_valid, cfg.seed + 1), batch_size=16)

    m = cfg.model
    model = LSTMLM(cfg.data.vocab_size, m.emb_dim, m.hidden, m.layers, m.dropout).to(device)
    optimizer = instantiate(cfg.optim, params=model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)

    step, valid = 0, float("inf")
    for epoch in range(cfg.trainer.epochs):
        train, step = run_epoch(model, train_loader, device, cfg, optimizer, epoch, step)
        valid, _ = run_epoch(model, valid_loader, device, cfg)
        scheduler.step()
        log.info("epoch %d done: train %.4f valid %.4f lr %.2e", epoch, train, valid, scheduler.get_last_lr()[0])

    out = Path(HydraConfig.get().runtime.output_dir)
    torch.save({"model": model.state_dict(), "cfg": OmegaConf.to_container(cfg, resolve=True)}, out / "final.pt")
    log.info("saved %s", out / "final.pt")
    return valid


if __name__ == "__main__":
    main()
