"""Datasets, samplers, collate functions and workers with state."""
import random

import numpy
import torch
from counters import Counter
from harness import CLASSES, WIDTH, Net, habit, train
from torch.utils import data


class Rows(data.Dataset):
    def __init__(self, n=20):
        generator = torch.Generator().manual_seed(6)
        self.x, self.y = torch.randn(n, WIDTH, generator=generator), torch.randint(CLASSES, (n,), generator=generator)
        self.reads = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.reads += 1
        return self.x[i] * (1 + 0.01 * self.reads), self.y[i]


class Augmented(Rows):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + random.random() + float(numpy.random.rand()) + torch.rand(()), y


class Sampler(data.Sampler):
    """Goes on where it was in each epoch."""

    def __init__(self, n):
        self.n, self.at, self.asked = n, 0, 0

    def __iter__(self):
        self.asked += 1
        for _ in range(self.n):
            self.at = (self.at * 5 + 3 + self.asked) % self.n
            yield self.at

    def __len__(self):
        return self.n


def epochs(loader, n=2):
    for _ in range(n):
        yield from loader


@habit
def loader_that_shuffles():
    rows = Rows()
    return train(Net(), data=epochs(data.DataLoader(rows, 4, shuffle=True))), rows.reads


@habit
def loader_with_its_generator():
    own = torch.Generator().manual_seed(2)
    return train(Net(), data=epochs(data.DataLoader(Augmented(), 4, shuffle=True, generator=own))), own


@habit
def sampler_with_state():
    sampler = Sampler(20)
    return train(Net(), data=epochs(data.DataLoader(Rows(), 4, sampler=sampler))), sampler.at, sampler.asked


@habit
def collate_with_state():
    calls, noise = Counter(), random.Random(3)

    def collate(items):
        n = calls.step()
        return torch.stack([x for x, _ in items]) * (1 + 0.01 * n + noise.random()), torch.stack([y for _, y in items])

    return train(Net(), data=epochs(data.DataLoader(Rows(), 4, collate_fn=collate))), calls, noise


class Stream(data.IterableDataset):
    def __init__(self):
        self.read = 0

    def __iter__(self):
        for _ in range(20):
            self.read += 1
            yield torch.full((WIDTH,), 0.1 * (self.read % 7)), self.read % CLASSES


@habit
def iterable_that_counts():
    stream = Stream()
    return train(Net(), data=epochs(data.DataLoader(stream, 4))), stream.read


def seed(worker):
    random.seed(torch.initial_seed() % 2**32)
    numpy.random.seed(torch.initial_seed() % 2**32)


@habit
def workers():
    return train(Net(), data=epochs(data.DataLoader(Augmented(), 4, num_workers=2, worker_init_fn=seed)))


@habit
def workers_of_a_stream():
    return train(Net(), data=epochs(data.DataLoader(Stream(), 4, num_workers=2)))


@habit
def loader_that_stays_open():
    """Endless, and read by next()."""
    rows = Rows()
    loader = data.DataLoader(rows, 4, shuffle=True)

    def endless():
        each = iter(loader)
        for _ in range(7):
            try:
                yield next(each)
            except StopIteration:
                each = iter(loader)
                yield next(each)

    return train(Net(), data=endless()), rows.reads


@habit
def last_batch_is_smaller():
    return train(Net(), data=epochs(data.DataLoader(Rows(18), 4, shuffle=True)))


@habit
def buckets():
    """Batches of different sizes, the largest not first."""
    rows = Rows(21)
    order = [[0, 1], [2, 3, 4, 5, 6, 7], [8], [9, 10, 11], list(range(12, 21))]
    return train(Net(), data=data.DataLoader(rows, batch_sampler=order)), rows.reads
