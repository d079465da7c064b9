# Lightning with its settings in the code; the first word is the package.
import importlib
import sys

import torch
from model import Net, data

L = importlib.import_module(sys.argv[1])


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        x, y = batch
        return (self.net(x) - y).pow(2).mean()

    def validation_step(self, batch, _):
        self.log("val", (self.net(batch[0]) - batch[1]).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = L.Trainer(max_epochs=2, accelerator="cpu", precision="bf16-mixed", accumulate_grad_batches=1, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
loader = torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True)
trainer.fit(Module(), loader, torch.utils.data.DataLoader(data(), batch_size=32))
print("batch", loader.batch_size, "accumulation", trainer.accumulate_grad_batches, "steps", trainer.global_step)
