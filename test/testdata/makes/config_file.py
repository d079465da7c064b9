import argparse

import yaml

import common

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf.yaml")
with open(parser.parse_args().config) as f:
    config = yaml.safe_load(f)["train"]
common.run(config["batch_size"], config["accum"])
