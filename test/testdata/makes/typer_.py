import typer

import common


def main(bs: int = 32, grad_accum: int = 1):
    common.run(bs, grad_accum)


typer.run(main)
