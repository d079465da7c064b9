import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from timm.models.vision_transformer import VisionTransformer
from timm.optim import param_groups_weight_decay

from data import TextureDataModule

torch.set_float32_matmul_precision("high")


class ViTClassifier(L.LightningModule):
    def __init__(self, image_size: int = 48, num_classes: int = 10, lr: float = 1e-3, weight_decay: float = 0.05,
                 warmup_frac: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = VisionTransformer(
            img_size=image_size,
            patch_size=4,
            embed_dim=96,
            depth=6,
            num_heads=4,
            num_classes=num_classes,
            proj_drop_rate=0.1,
            attn_drop_rate=0.1,
            drop_path_rate=0.1,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def _shared(self, batch):
        x, y = batch
        logits = self(x)
        return F.cross_entropy(logits, y, label_smoothing=0.1 if self.training else 0.0), (logits.argmax(-1) == y).float().mean()

    def training_step(self, batch, batch_idx):
        loss, acc = self._shared(batch)
        self.log_dict({"train/loss": loss, "train/acc": acc}, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, acc = self._shared(batch)
        self.log_dict({"val/loss": loss, "val/acc": acc}, batch_size=len(batch[1]))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(
            param_groups_weight_decay(self.net, self.hparams.weight_decay), lr=self.hparams.lr, betas=(0.9, 0.95)
        )
        total = int(self.trainer.estimated_stepping_batches)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, max_lr=self.hparams.lr, total_steps=total, pct_start=self.hparams.warmup_frac
        )
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class StdoutLogger(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        print(f"step {trainer.global_step} loss {outputs['loss'].item():.4f}", flush=True)

    def on_validation_epoch_end(self, trainer, pl_module):
        m = trainer.callback_metrics
        if "val/acc" in m:
            print(f"val acc {m['val/acc'].item():.3f}", flush=True)


def main():
    L.seed_everything(11, workers=True)
    dm = TextureDataModule(batch_size=40)
    model = ViTClassifier()
    trainer = L.Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=1,
        gradient_clip_val=1.0,
        callbacks=[StdoutLogger(), ModelCheckpoint(dirpath="ckpts", filename="vit-{step}", save_last=True)],
        logger=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, datamodule=dm)
    trainer.save_checkpoint("ckpts/final.ckpt")


if __name__ == "__main__":
    main()
