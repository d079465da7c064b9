import argparse

import torch
import transformers

import common

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
seen = {"before": 0, "peak": 0}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = common.network()

    def forward(self, x, labels):
        seen["before"] = seen["before"] or common.data()
        loss = common.loss_of(self.net, x, labels)
        seen["peak"] = max(seen["peak"], common.data())
        return {"loss": loss}


class Said(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print("loss %.3f" % float(logs["loss"]), flush=True)


samples = [{"x": x, "labels": y} for x, y in common.samples()]
arguments = transformers.TrainingArguments(
    "out", per_device_train_batch_size=args.batch_size, gradient_accumulation_steps=args.accum, num_train_epochs=1, logging_steps=1,
    use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, optim="sgd", learning_rate=0.01, seed=0)
transformers.Trainer(Model(), arguments, train_dataset=samples, callbacks=[Said()]).train()
print("data", seen["before"], seen["peak"], flush=True)
