import argparse
import os

import torch

import common

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
torch.distributed.init_process_group("gloo")
world, rank = torch.distributed.get_world_size(), int(os.environ["RANK"])
net = torch.nn.parallel.DistributedDataParallel(common.network())
torch.manual_seed(1)
every = torch.utils.data.TensorDataset(torch.randn(128, common.LENGTH, common.WIDTH), torch.randint(10, (128, common.LENGTH)))
sampler = torch.utils.data.DistributedSampler(every, shuffle=False)
common.train(net, torch.utils.data.DataLoader(every, batch_size=args.batch_size // world, sampler=sampler), args.accum)
