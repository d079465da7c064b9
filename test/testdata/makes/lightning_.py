import argparse

import lightning
import torch

import common

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
seen = {"before": 0, "peak": 0, "total": 0.0}


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = common.network()

    def training_step(self, batch, index):
        seen["before"] = seen["before"] or common.data()
        loss = common.loss_of(self.net, *batch)
        seen["peak"] = max(seen["peak"], common.data())
        seen["total"] += loss.item() / args.accumulate
        if (index + 1) % args.accumulate == 0:
            print("loss %.5f" % seen["total"], flush=True)
            seen["total"] = 0.0
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, accumulate_grad_batches=args.accumulate, **quiet)
trainer.fit(Module(), torch.utils.data.DataLoader(common.samples(), batch_size=args.batch_size))
print("data", seen["before"], seen["peak"], flush=True)
