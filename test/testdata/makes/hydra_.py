import hydra

import common


@hydra.main(config_path=".", config_name="conf", version_base=None)
def main(cfg):
    common.run(cfg.train.batch_size, cfg.train.accum)


main()
