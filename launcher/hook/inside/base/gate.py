# Every rank or none: where gpurun has changed the batch, a rank waits before its first
# step until gpurun has a report from all of them.
import os
import time

from . import process


BOUND = 600  # seconds


def wait():
    if not process.orders().get("batch"):
        return
    go = os.path.join(process.start["folder"], "go")
    process.told["waiting"] = True
    process.save()
    until, pause = time.monotonic() + BOUND, 0.005
    while not os.path.exists(go):
        if time.monotonic() > until:
            process.say("the ranks did not agree on their batch within %d minutes: this one ends" % (BOUND // 60))
            os._exit(1)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    process.told["waiting"] = False
