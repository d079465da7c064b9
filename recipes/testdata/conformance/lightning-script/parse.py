"""What a script gets that hands arguments on to a Trainer."""

import argparse
import importlib.util
import pathlib

spec = importlib.util.spec_from_file_location("cli", pathlib.Path(__file__).parent.parent / "lightning" / "parse.py")
cli = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cli)

PACKAGES = ["lightning", "deepspeed"]


def parse(case):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--num_workers", type=int)
    parser.add_argument("--accumulate_grad_batches", type=int, default=1)
    parser.add_argument("--precision")
    parser.add_argument("--strategy", default="auto")
    args = parser.parse_args(case.argv[1:])
    return {**cli.trainer_plan(args, case.ranks), "micro_batch_size": args.batch_size, "dataloader_workers": args.num_workers}
