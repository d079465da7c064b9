import common

BATCH, ACCUM = 32, 1
common.run(BATCH, ACCUM)
