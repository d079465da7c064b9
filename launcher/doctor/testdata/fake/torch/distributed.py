import sys, time

is_available = is_nccl_available = lambda: True


def init_process_group(backend, rank=0, **_):
    from . import fake
    if "hang" in fake.get("collective", ""):
        open(fake["collective"] + str(rank), "w").close()
        time.sleep(1000)
    if "collective" in fake and rank == 1:
        print("NCCL WARN " + fake["collective"], flush=True)  # as C does, before the exception
        raise RuntimeError("NCCL error in: unhandled system error")


def all_reduce(tensor):
    time.sleep(0.001)


def barrier():
    pass


destroy_process_group = barrier
