import click

import common


@click.command()
@click.option("--batch-size", type=int, default=32)
@click.option("--accumulate", type=int, default=1)
def main(batch_size, accumulate):
    common.run(batch_size, accumulate)


main()
