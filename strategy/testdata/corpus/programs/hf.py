"""Train a small GPT-2 with transformers' Trainer, and run out of memory in the phase that --starve names."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from starve import feed, starve

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--starve", default="")
parser.add_argument("--auto", action="store_true")
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--out", default="out")
args = parser.parse_args()


class Random(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        tokens = torch.randint(0, 1000, (256,))
        return {"input_ids": tokens, "labels": tokens}


class Starver(TrainerCallback):
    def on_step_begin(self, *_, **__):
        if args.starve == "forward":
            starve(args.device)

    def on_pre_optimizer_step(self, *_, **__):
        if args.starve == "optimizer":
            starve(args.device)

    def on_step_end(self, *_, **__):
        if args.starve == "eval":
            starve(args.device)


class Trainer(Trainer):
    def compute_loss(self, *a, **k):
        loss = super().compute_loss(*a, **k)
        if args.starve == "backward":
            starve(args.device)
        if args.starve == "recompute":
            starve(args.device, leave=120 << 20)
        return loss

    def _inner_training_loop(self, *a, **k):
        self.tries = getattr(self, "tries", 0) + 1
        if args.auto and self.tries < 3:
            starve(args.device)
            try:
                torch.ones(1 << 28, device=args.device)
            finally:
                feed(args.device)
        return super()._inner_training_loop(*a, **k)


model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=256, n_embd=256, n_layer=2, n_head=4))
if args.device == "cuda":
    model.cuda()
    model(torch.zeros(1, 8, dtype=torch.long, device="cuda"), labels=torch.zeros(1, 8, dtype=torch.long, device="cuda")).loss.backward()
    model.zero_grad(set_to_none=True)
options = TrainingArguments(
    output_dir=args.out, per_device_train_batch_size=args.batch, max_steps=args.steps, report_to=[], save_steps=args.steps,
    eval_strategy="steps" if args.starve == "eval" else "no", eval_steps=1, per_device_eval_batch_size=args.batch, logging_steps=1,
    use_cpu=args.device == "cpu", auto_find_batch_size=args.auto, gradient_checkpointing=args.checkpointing,
)
trainer = Trainer(model=model, args=options, train_dataset=Random(), eval_dataset=Random(), callbacks=[Starver()])
trainer.train()
