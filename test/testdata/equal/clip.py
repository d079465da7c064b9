import argparse
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual, self.text = nn.Linear(10, 6), nn.EmbeddingBag(30, 6)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, image, text):
        image_features, text_features = self.visual(image), self.text(text)
        image_features = image_features / image_features.norm(dim=-1, keepdim=True)
        text_features = text_features / text_features.norm(dim=-1, keepdim=True)
        logits_per_image = self.logit_scale.exp() * image_features @ text_features.t()
        return logits_per_image, logits_per_image.t()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--grad-accum-steps", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, ce = CLIP(), nn.CrossEntropyLoss()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(48, 10), torch.randint(30, (48, 5))), batch_size=args.batch_size)
    for i, (image, text) in enumerate(loader):
        per_image, per_text = model(image, text)
        truth = torch.arange(image.shape[0])
        total = (ce(per_image, truth) + ce(per_text, truth)) / 2
        loss = total / args.grad_accum_steps
        loss.backward()
        if (i + 1) % args.grad_accum_steps == 0:
            opt.step()
            opt.zero_grad()


main()
