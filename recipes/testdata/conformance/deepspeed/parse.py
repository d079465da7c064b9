"""What deepspeed.initialize reads from the configuration that the arguments name."""

import argparse

import deepspeed
import zero

PACKAGES = ["deepspeed"]


def parse(case):
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    args, _ = parser.parse_known_args(case.argv[1:])
    return zero.read(args.deepspeed_config, case.ranks)
