import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
from transformers import get_cosine_schedule_with_warmup

config = {
    "seed": 0,
    "per_device_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "num_epochs": 1,
    "num_documents": 160,
    "block_size": 256,
    "vocab_size": 8000,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 96,
    "dropout": 0.1,
    "lr": 1.5e-3,
    "warmup_steps": 4,
    "max_grad_norm": 1.0,
    "output_dir": "gpt-out",
}


class MarkovText(Dataset):
    """Zipf-ish bigram text: token t is followed by one of 4 fixed successors most of the time."""

    def __init__(self, n, block, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        successors = torch.randint(0, vocab, (vocab, 4), generator=g)
        hot = torch.randint(0, 300, (n, block + 1), generator=g)
        pick = torch.randint(0, 4, (n, block + 1), generator=g)
        reset = torch.rand(n, block + 1, generator=g) < 0.15
        x = hot.clone()
        for t in range(1, block + 1):
            x[:, t] = torch.where(reset[:, t], hot[:, t], successors[x[:, t - 1], pick[:, t]] % 600)
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_ids": self.x[i, :-1], "labels": self.x[i, 1:]}


class CausalSelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head = c["n_head"]
        self.qkv = nn.Linear(c["n_embd"], 3 * c["n_embd"])
        self.proj = nn.Linear(c["n_embd"], c["n_embd"])
        self.attn_drop = nn.Dropout(c["dropout"])
        self.resid_drop = nn.Dropout(c["dropout"])
        mask = torch.tril(torch.ones(c["block_size"], c["block_size"], dtype=torch.bool))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head).permute(2, 0, 3, 1, 4)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        att = att.masked_fill(~self.mask[:T, :T], float("-inf")).softmax(-1)
        y = (self.attn_drop(att) @ v).transpose(1, 2).reshape(B, T, C)
        return self.resid_drop(self.proj(y))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(c["n_embd"]), nn.LayerNorm(c["n_embd"])
        self.attn = CausalSelfAttention(c)
        self.mlp = nn.Sequential(nn.Linear(c["n_embd"], 4 * c["n_embd"]), nn.GELU(),
                                 nn.Linear(4 * c["n_embd"], c["n_embd"]), nn.Dropout(c["dropout"]))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c["vocab_size"], c["n_embd"])
        self.wpe = nn.Embedding(c["block_size"], c["n_embd"])
        self.drop = nn.Dropout(c["dropout"])
        self.h = nn.ModuleList([Block(c) for _ in range(c["n_layer"])])
        self.ln_f = nn.LayerNorm(c["n_embd"])
        self.lm_head = nn.Linear(c["n_embd"], c["vocab_size"], bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight  # tied

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, input_ids, labels=None):
        pos = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.drop(self.wte(input_ids) + self.wpe(pos))
        for blk in self.h:
            x = blk(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.reshape(-1))
        return logits, loss


def training_function(config):
    accelerator = Accelerator(gradient_accumulation_steps=config["gradient_accumulation_steps"])
    set_seed(config["seed"])

    dataset = MarkovText(config["num_documents"], config["block_size"], config["vocab_size"], config["seed"])
    dataloader = DataLoader(dataset, shuffle=True, batch_size=config["per_device_batch_size"])
    model = GPT(config)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                   {"params": no_decay, "weight_decay": 0.0}],
                                  lr=config["lr"], betas=(0.9, 0.95))
    steps_per_epoch = math.ceil(len(dataloader) / config["gradient_accumulation_steps"])
    max_steps = steps_per_epoch * config["num_epochs"]
    scheduler = get_cosine_schedule_with_warmup(
        optimizer,
        num_warmup_steps=config["warmup_steps"] * accelerator.num_processes,
        num_training_steps=max_steps * accelerator.num_processes,
    )
    model, optimizer, dataloader, scheduler = accelerator.prepare(model, optimizer, dataloader, scheduler)

    accelerator.print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M params, {max_steps} updates, "
                      f"effective batch {config['per_device_batch_size'] * config['gradient_accumulation_steps'] * accelerator.num_processes}")
    progress = tqdm(range(max_steps), disable=not accelerator.is_local_main_process, mininterval=5)
    completed = 0
    running, n_running = 0.0, 0
    for epoch in range(config["num_epochs"]):
        model.train()
        for batch in dataloader:
            with accelerator.accumulate(model):
                _, loss = model(**batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config["max_grad_norm"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            running += loss.detach().float().item()
            n_running += 1
            if accelerator.sync_gradients:
                completed += 1
                progress.update(1)
                accelerator.print(f"update {completed} loss {running / n_running:.4f} "
                                  f"lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
                running, n_running = 0.0, 0

    accelerator.wait_for_everyone()
    os.makedirs(config["output_dir"], exist_ok=True)
    accelerator.save_state(config["output_dir"])
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), os.path.join(config["output_dir"], "gpt.pt"))


if __name__ == "__main__":
    training_function(config)
