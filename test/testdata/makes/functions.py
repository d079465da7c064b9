# Functions that build everything.
import argparse

import torch

import common


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-gpu-batch", type=int, default=32)
    parser.add_argument("--grad-accum-steps", type=int, default=1)
    return vars(parser.parse_args())


def build(config):
    makers = {"net": lambda c: common.network(), "loader": lambda c: torch.utils.data.DataLoader(common.samples(), c["per_gpu_batch"])}
    return {name: make(config) for name, make in makers.items()}


def main(config):
    parts = build(config)
    common.train(parts["net"], parts["loader"], config["grad_accum_steps"])


main(parse())
