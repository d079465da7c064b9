"""Waits until no other job of the tests uses the GPU. Jobs import it after their packages, so that only the import times of several jobs overlap.

GPURUN_GPU_LOCK names the file that is locked until the process ends; without it nothing is done. Of a job with several ranks, rank 0 locks it.
"""

import fcntl
import os

if (path := os.environ.get("GPURUN_GPU_LOCK")) and os.environ.get("RANK", "0") == "0":
    held = os.open(path, os.O_RDWR | os.O_CREAT)  # open until the process ends
    fcntl.flock(held, fcntl.LOCK_EX)
