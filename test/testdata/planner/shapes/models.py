"""Models of several shapes, each with recomputation per block by PyTorch's own switch. A model returns its loss for a batch."""

import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import Block
from torch import nn
from torch.utils.checkpoint import checkpoint


class Recomputed(nn.Module):
    """The base of the models here: `run` calls a block, and recomputes it in the backward pass if asked for."""

    recompute = False

    def run(self, block, *inputs):
        if self.recompute and self.training:
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)


class Classifier(nn.Module):
    """A timm model with its own switch."""

    def __init__(self, name, size, classes=100):
        super().__init__()
        self.size, self.classes = size, classes
        self.model = timm.create_model(name, num_classes=classes, img_size=size)

    def switch(self, on):
        self.model.set_grad_checkpointing(on)

    def batch(self, n, device):
        return torch.randn(n, 3, self.size, self.size, device=device), torch.randint(self.classes, (n,), device=device)

    def forward(self, images, labels):
        return F.cross_entropy(self.model(images), labels)


class MaskedAutoencoder(Recomputed):
    """An encoder of a quarter of the patches, and a decoder of all of them (He et al. 2021, arXiv:2111.06377)."""

    def __init__(self, size=224, patch=14, width=1024, depth=20, decoder_width=512, decoder_depth=8):
        super().__init__()
        self.size, self.patch, self.count = size, patch, (size // patch) ** 2
        self.embed, self.places = nn.Linear(3 * patch * patch, width), nn.Parameter(torch.zeros(1, self.count, width))
        self.encoder = nn.ModuleList(Block(width, width // 64, qkv_bias=True) for _ in range(depth))
        self.narrow, self.mask = nn.Linear(width, decoder_width), nn.Parameter(torch.zeros(1, 1, decoder_width))
        self.decoder_places = nn.Parameter(torch.zeros(1, self.count, decoder_width))
        self.decoder = nn.ModuleList(Block(decoder_width, decoder_width // 32, qkv_bias=True) for _ in range(decoder_depth))
        self.head = nn.Linear(decoder_width, 3 * patch * patch)

    def switch(self, on):
        self.recompute = on

    def batch(self, n, device):
        return (torch.randn(n, 3, self.size, self.size, device=device),)

    def forward(self, images):
        p = self.patch
        patches = images.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        order = torch.rand(patches.shape[:2], device=patches.device).argsort(1)
        kept = order[:, : self.count // 4, None]
        x = (self.embed(patches) + self.places).gather(1, kept.expand(-1, -1, self.embed.out_features))
        for block in self.encoder:
            x = self.run(block, x)
        x = self.narrow(x)
        full = self.mask.to(x.dtype).expand(len(x), self.count, -1).scatter(1, kept.expand(-1, -1, x.shape[-1]), x) + self.decoder_places
        for block in self.decoder:
            full = self.run(block, full)
        return (self.head(full) - patches).square().mean()


class Residual(nn.Module):
    """A block of a diffusion model's U-Net: two convolutions with GroupNorm, and the time between them."""

    def __init__(self, channels, out, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time, self.skip = nn.Linear(time, out), nn.Conv2d(channels, out, 1)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(Recomputed):
    """A denoising U-Net (Ho et al. 2020, arXiv:2006.11239) without attention."""

    def __init__(self, size=128, width=128, levels=(1, 2, 3, 4), blocks=2):
        super().__init__()
        self.size, time = size, 4 * width
        self.time, self.first = nn.Sequential(nn.Linear(1, time), nn.SiLU(), nn.Linear(time, time)), nn.Conv2d(3, width, 3, padding=1)
        self.down, self.up, channels, skips = nn.ModuleList(), nn.ModuleList(), width, []
        for factor in levels:
            for _ in range(blocks):
                self.down.append(Residual(channels, width * factor, time))
                channels = width * factor
                skips.append(channels)
        for factor in reversed(levels):
            for _ in range(blocks):
                self.up.append(Residual(channels + skips.pop(), width * factor, time))
                channels = width * factor
        self.blocks, self.last = blocks, nn.Conv2d(channels, 3, 3, padding=1)

    def switch(self, on):
        self.recompute = on

    def batch(self, n, device):
        images = torch.randn(n, 3, self.size, self.size, device=device)
        return images, torch.randn_like(images), torch.rand(n, 1, device=device)

    def forward(self, images, noise, moment):
        time = self.time(moment)
        share = moment[:, :, None, None]
        x, skips = self.first(images * (1 - share) + noise * share), []
        for i, block in enumerate(self.down):
            x = F.avg_pool2d(x, 2) if i and i % self.blocks == 0 else x
            x = self.run(block, x, time)
            skips.append(x)
        for i, block in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2.0) if i and i % self.blocks == 0 else x
            x = self.run(block, torch.cat([x, skips.pop()], 1), time)
        return F.mse_loss(self.last(x), noise)


class LSTM(nn.Module):
    """A language model of stacked LSTMs. It has no switch for recomputation."""

    def __init__(self, vocabulary=8192, width=1536, depth=4, sequence=512):
        super().__init__()
        self.vocabulary, self.sequence = vocabulary, sequence
        self.tokens, self.cells = nn.Embedding(vocabulary, width), nn.LSTM(width, width, depth, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def batch(self, n, device):
        return (torch.randint(self.vocabulary, (n, self.sequence + 1), device=device),)

    def forward(self, ids):
        logits = self.head(self.cells(self.tokens(ids[:, :-1]))[0])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def create(name, tiny):
    if name == "mae":
        return MaskedAutoencoder(32, 8, 64, 2, 32, 2) if tiny else MaskedAutoencoder()
    if name == "unet":
        return UNet(16, 8, (1, 2), 1) if tiny else UNet()
    if name == "lstm":
        return LSTM(64, 32, 2, 16) if tiny else LSTM()
    return Classifier("vit_tiny_patch16_224", 32) if tiny else Classifier(name, 224)
