# Frameworks that train a small model. Memory runs out at the calls named by the words after the
# first, as forward:5; in DistributedDataParallel on rank 1 alone.
import json
import os
import sys

import loops
import torch
from torch import nn


class Model(nn.Module):
    """Its loss is inside."""

    def __init__(self):
        super().__init__()
        self.net = loops.Net(dropout=0.1)

    def forward(self, x, labels=None):
        output = self.net(x)
        return {"loss": loops.loss_of(output, x), "logits": output}


class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.rows = torch.cat(loops.batches(n))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"x": self.rows[i], "labels": self.rows[i]}


def tell(net, losses=()):
    print(json.dumps({"losses": list(losses), "weights": [p.double().sum().item() for p in net.parameters()], "calls": loops.fail.count, "hit": loops.fail.hit}))


def trainer():
    import transformers

    args = transformers.TrainingArguments(
        "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=1, dataloader_pin_memory=False,
    )
    net = Model()
    done = transformers.Trainer(net, args, train_dataset=Rows(8))
    done.train()
    tell(net, [entry["loss"] for entry in done.state.log_history if "loss" in entry])


def lightning_():
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = Model(), []

        def training_step(self, batch, _):
            loss = self.model(batch["x"])["loss"]
            self.losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    module = Module()
    made = L.Trainer(max_epochs=1, accelerator="cpu", accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    made.fit(module, torch.utils.data.DataLoader(Rows(8), batch_size=4))
    tell(module, module.losses)


def accelerate_():
    import accelerate

    accelerator = accelerate.Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True)
    net, losses = Model(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net, optimizer, loader = accelerator.prepare(net, optimizer, torch.utils.data.DataLoader(Rows(8), batch_size=4))
    for batch in loader:
        with accelerator.accumulate(net):
            loss = net(batch["x"])["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    tell(net, losses)


def rank(number, at, address):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=address, rank=number, world_size=2)
    torch.manual_seed(0)
    net = loops.Net(dropout=0.1)
    ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
    loops.expect(*(at if number == 1 else ()))
    torch.manual_seed(number)
    data = loops.batches(12)[number::2]
    optimizer, losses = torch.optim.AdamW(net.parameters(), lr=0.01), []
    for i, x in enumerate(data):
        reduces = i % 2 == 1
        ddp.require_backward_grad_sync = reduces
        loss = loops.loss_of(ddp(x), x) / 2
        loss.backward()
        losses.append(loss.item())
        if reduces:
            optimizer.step()
            optimizer.zero_grad()
    with open("rank%d" % number, "w") as sys.stdout:
        tell(net, losses)
    sys.stdout = sys.__stdout__
    dist.destroy_process_group()


def ranks(at):
    import multiprocessing

    context, address = multiprocessing.get_context("fork"), "file://" + os.path.abspath("store")
    children = [context.Process(target=rank, args=(number, at, address)) for number in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert all(child.exitcode == 0 for child in children)
    for number in (0, 1):
        with open("rank%d" % number) as file:
            print(file.read(), end="")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    at = [(where, int(n)) for where, n in (word.split(":") for word in sys.argv[2:])]
    loops.expect(*at)
    if sys.argv[1] == "ranks":
        ranks(at)
    else:
        globals()[sys.argv[1]]()
