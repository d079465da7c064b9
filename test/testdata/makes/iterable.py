import argparse

import torch

import common


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from common.samples()


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
common.train(common.network(), torch.utils.data.DataLoader(Stream(), batch_size=args.batch_size), args.accum)
