# Frameworks that train models in which recomputation cannot help: they have no repeated blocks, or recompute theirs
# already. From the first batch on they have so much more memory as the second word says, in MiB; in
# DistributedDataParallel rank 1 alone. As JSON they print their losses and weights.
import json
import os
import sys

import parts
import torch
from torch import nn

ROWS, STEPS = 64, 2
ceiling = [0]  # MiB, until it is set


def limit():
    mib, ceiling[0] = ceiling[0], 0
    if mib:
        parts.limit(mib)


class Model(nn.Module):
    """Its loss is inside: a mean over the items of all rows."""

    def __init__(self, loss=nn.functional.mse_loss):
        super().__init__()
        self.net, self.loss = parts.Encoder(), loss

    def forward(self, x, labels=None):
        output = self.net(x)
        return {"loss": self.loss(output, labels), "logits": output}


class Data(torch.utils.data.Dataset):
    def __init__(self, batches=2 * STEPS):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(batches * ROWS, parts.WIDE, generator=generator)
        self.y = torch.randn(batches * ROWS, 8, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        limit()
        return {"x": self.x[i], "labels": self.y[i]}


def tell(net, losses=()):
    print(json.dumps({"losses": list(losses), "weights": [v for p in net.parameters() for v in p.flatten().tolist()[:64]]}))


def trained(net, dataset, collator=None, **more):
    import transformers

    args = transformers.TrainingArguments(
        "out", per_device_train_batch_size=ROWS, gradient_accumulation_steps=2, logging_steps=1, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=1, dataloader_pin_memory=False, **more)
    done = transformers.Trainer(net, args, train_dataset=dataset, data_collator=collator)
    done.train()
    tell(net, [entry["loss"] for entry in done.state.log_history if "loss" in entry])


def trainer():
    trained(Model(), Data())


def of_some(output, labels):
    """A mean over the items that a condition selects, of which nothing outside says how many they are."""
    return (output - labels)[labels > 0.2].square().mean()


def trainer_unknown():
    trained(Model(of_some), Data())


def unknown():
    net, data = Model(of_some), Data(1)
    net(data.x[:4], data.y[:4])["loss"].backward()
    limit()
    net(data.x, data.y)["loss"].backward()
    tell(net)


class Words(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, 4096, (2 * STEPS * ROWS, 64), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        limit()
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def checkpointed():
    """Its blocks are recomputed as the job's settings say."""
    import transformers

    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=4096, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False)
    trained(transformers.GPT2LMHeadModel(config), Words(), gradient_checkpointing=True)


def lightning_():
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = parts.Encoder(), []

        def training_step(self, batch, _):
            loss = nn.functional.mse_loss(self.model(batch["x"]), batch["labels"])
            self.losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    module = Module()
    made = L.Trainer(max_epochs=1, accelerator="cpu", accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    made.fit(module, torch.utils.data.DataLoader(Data(), batch_size=ROWS))
    tell(module, module.losses)


def accelerate_():
    import accelerate

    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True)
    net, losses = parts.Encoder(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net, optimizer, loader = accelerator.prepare(net, optimizer, torch.utils.data.DataLoader(Data(), batch_size=ROWS))
    for batch in loader:
        with accelerator.accumulate(net):
            loss = nn.functional.mse_loss(net(batch["x"]), batch["labels"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    tell(net, losses)


def rank(number, address):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=address, rank=number, world_size=2)
    torch.manual_seed(0)
    net = Model()
    ddp = nn.parallel.DistributedDataParallel(net)
    optimizer, losses = torch.optim.AdamW(net.parameters(), lr=0.01), []
    if number == 0:
        ceiling[0] = 0
    data = Data()
    for i in range(2 * STEPS):
        batch = torch.utils.data.default_collate([data[(i * ROWS + j + number * ROWS) % len(data)] for j in range(ROWS)])
        reduces = i % 2 == 1
        ddp.require_backward_grad_sync = reduces
        loss = ddp(**batch)["loss"] / 2
        loss.backward()
        losses.append(loss.item())
        if reduces:
            optimizer.step()
            optimizer.zero_grad()
    with open("rank%d" % number, "w") as sys.stdout:
        tell(net, losses)
    sys.stdout = sys.__stdout__
    dist.destroy_process_group()


def ranks():
    import multiprocessing

    context, address = multiprocessing.get_context("fork"), "file://" + os.path.abspath("store")
    children = [context.Process(target=rank, args=(number, address)) for number in (0, 1)]
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
    ceiling[0] = int(sys.argv[2])
    globals()[sys.argv[1]]()
