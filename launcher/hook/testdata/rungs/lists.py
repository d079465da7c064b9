"""Which blocks are found in a model."""
import unittest

from torch import nn

import models
from harness import part

FOUND = {
    "plain loop": (models.GPT, [("transformer.h", "Block", 4)]),
    "two lists": (models.EncoderDecoder, [("encoder", "Block", 3), ("decoder", "Cross", 2)]),
    "sequential": (models.ConvNet, [("layer1", "Residual", 2), ("layer2", "Residual", 3)]),
    "stages": (models.Swin, [("layers.0.blocks", "Block", 2), ("layers.1.blocks", "Block", 3), ("layers.2.blocks", "Block", 1)]),
    "heads in a block": (lambda: models.GPT(block=models.HeadBlock), [("transformer.h", "HeadBlock", 4)]),
    "columns": (models.Columns, [("layers", "Attention", 3), ("layers", "Sequential", 3)]),
    "attributes": (models.UNet, [("", "Residual", 2), ("", "PreActivation", 2)]),
    "dict": (models.Dense, [("layers", "Layer", 3)]),
    "wrapped": (lambda: nn.DataParallel(models.GPT()), [("transformer.h", "Block", 4)]),
    "one among others": (
        lambda: nn.Sequential(nn.Linear(2, 2), models.Residual(4, nn.BatchNorm2d), models.Residual(8, nn.BatchNorm2d), nn.ReLU()),
        [("", "Residual", 2)],
    ),
    "nothing repeated": (models.Plain, []),
    "leaves only": (lambda: nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), []),
}


class Lists(unittest.TestCase):
    pass


def case(make, want):
    def test(self):
        found = part("blocks").find(make())
        self.assertEqual([(each["path"], each["class"], each["count"]) for each in found], want)
        for each in found:
            self.assertEqual(len(each["modules"]), each["count"])

    return test


for name, (make, want) in FOUND.items():
    setattr(Lists, "test_" + name.replace(" ", "_"), case(make, want))
