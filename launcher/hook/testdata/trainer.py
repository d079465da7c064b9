# A Trainer with its settings in the code.
import sys
from dataclasses import dataclass

import transformers
from model import Net, data


@dataclass
class Arguments(transformers.TrainingArguments):
    mine: int = 3


class Rows:
    def __init__(self):
        self.rows = data(128)

    def __len__(self):
        return 128

    def __getitem__(self, i):
        x, y = self.rows[i]
        return {"x": x, "labels": y}


kind = Arguments if "subclass" in sys.argv else transformers.TrainingArguments
args = kind(
    "out", per_device_train_batch_size=16, gradient_accumulation_steps=1, per_device_eval_batch_size=4, logging_steps=1,
    num_train_epochs=1, report_to=[], use_cpu=True, save_strategy="no", optim="adamw_torch", dataloader_pin_memory=False, disable_tqdm=True,
)
trainer = transformers.Trainer(Net(), args, train_dataset=Rows())
trainer.train()
print("batch", args.per_device_train_batch_size, "accumulation", args.gradient_accumulation_steps, "steps", trainer.state.global_step)
