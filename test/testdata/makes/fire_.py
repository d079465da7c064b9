import fire

import common


def main(batch_size=32, accum=1):
    common.run(batch_size, accum)


fire.Fire(main)
