# A Trainer whose arguments are filled in code.
import json
import os
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import alone  # noqa: F401

torch.manual_seed(0)


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        ids = torch.randint(8192, (512,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


class Watch(TrainerCallback):
    losses, seconds = [], []

    def on_step_begin(self, *args, **kwargs):
        self.begun = time.perf_counter()

    def on_step_end(self, *args, **kwargs):
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.begun)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


model = GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_positions=512, n_embd=1024, n_layer=16, n_head=16, use_cache=False))
if os.environ.get("OWN"):
    model.gradient_checkpointing_enable()
arguments = TrainingArguments(
    output_dir="out-trainer",
    per_device_train_batch_size=32,
    max_steps=8,
    learning_rate=1e-4,
    logging_steps=1,
    bf16=True,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Watch()]).train()
print("RESULT", json.dumps({"losses": Watch.losses, "seconds": min(Watch.seconds[3:]), "each": Watch.seconds, "peak": torch.cuda.max_memory_allocated()}))
