# Its ranks are children that multiprocessing starts; what one raises comes back as a text.
import multiprocessing
import sys
import traceback

import torch


def rank(how, back):
    sys.argv[1:] = [how]
    try:
        import train
    except Exception:
        back.put(traceback.format_exc())
        sys.exit(1)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    back = context.SimpleQueue()
    child = context.Process(target=rank, args=(sys.argv[1], back))
    child.start()
    child.join()
    if child.exitcode:
        raise Exception("\n\n-- Process 0 terminated with the following error:\n" + back.get())
