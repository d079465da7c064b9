import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset


class SyntheticTextures(Dataset):
    """Class = dominant spatial frequency. Images are made on the fly from (seed, index)."""

    def __init__(self, length: int, image_size: int, num_classes: int, seed: int):
        self.length = length
        self.image_size = image_size
        self.num_classes = num_classes
        self.seed = seed
        axis = torch.linspace(0, 1, image_size)
        self.yy, self.xx = torch.meshgrid(axis, axis, indexing="ij")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, idx: int):
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + idx)
        label = int(torch.randint(self.num_classes, (), generator=g))
        freq = 2.0 + 1.5 * label
        ph = torch.rand(2, generator=g) * 6.283
        base = torch.sin(6.283 * freq * self.xx + ph[0]) * torch.sin(6.283 * freq * self.yy + ph[1])
        img = base[None].expand(3, -1, -1) + 0.5 * torch.randn(3, self.image_size, self.image_size, generator=g)
        return img, label


class TextureDataModule(L.LightningDataModule):
    def __init__(
        self,
        batch_size: int = 64,
        image_size: int = 48,
        num_classes: int = 10,
        train_len: int = 800,
        val_len: int = 64,
        num_workers: int = 0,
        seed: int = 11,
    ):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        hp = self.hparams
        if stage == "fit":
            self.train_ds = SyntheticTextures(hp.train_len, hp.image_size, hp.num_classes, hp.seed)
            self.val_ds = SyntheticTextures(hp.val_len, hp.image_size, hp.num_classes, hp.seed + 1)

    def train_dataloader(self):
        return DataLoader(
            self.train_ds,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            num_workers=self.hparams.num_workers,
            drop_last=True,
        )

    def val_dataloader(self):
        return DataLoader(self.val_ds, batch_size=32, num_workers=self.hparams.num_workers)
