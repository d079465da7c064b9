import random

import torch
from torch.utils.data import Dataset

PAD, IGNORE = 0, -100
VOCAB, TAGS = 2000, 17


class Documents(Dataset):
    """Reports of 100-128 tokens in the order they were filed. A single report is the
    yearly summary, which has three times as many tokens as the others."""

    def __init__(self, n=640, seed=21, summary_at=533, lo=100, hi=128):
        rnd = random.Random(seed)
        tag_of = [rnd.randrange(TAGS) for _ in range(VOCAB)]
        self.docs = []
        for k in range(n):
            length = 3 * hi if k == summary_at else rnd.randint(lo, hi)
            ids = [1 + int((VOCAB - 1) * rnd.random() ** 3) for _ in range(length)]
            # the tag of a token depends on it and, for every third word, on its left neighbour
            tags = [tag_of[w] if w % 3 or i == 0 else tag_of[ids[i - 1]] for i, w in enumerate(ids)]
            self.docs.append((torch.tensor(ids), torch.tensor(tags)))

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i]


def collate(batch):
    width = max(len(ids) for ids, _ in batch)
    x = torch.full((len(batch), width), PAD)
    y = torch.full((len(batch), width), IGNORE)
    for row, (ids, tags) in enumerate(batch):
        x[row, : len(ids)] = ids
        y[row, : len(tags)] = tags
    return x, y
