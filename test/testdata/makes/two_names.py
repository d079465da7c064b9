# Two names with the value that the process uses: the first one is of something else.
import argparse

import common

parser = argparse.ArgumentParser()
parser.add_argument("--train-batch-size", type=int, default=32, help="of another stage")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
common.run(args.batch_size, args.accum)
