# Under a limit of the process's data (RLIMIT_DATA) the library that multiplies matrices gets
# its working memory here, before the job can fill its limit. OpenBLAS asks for it
# at the first multiplication; without any, some versions retry for ever.
from . import meters

SIDE = 256  # smaller matrices are multiplied without it


def arrived(torch):
    """Called when torch is there."""
    if not meters.Host().limit or not asks_late():
        return
    one = torch.ones(SIDE, SIDE, dtype=torch.float32, device="cpu")
    one @ one


def asks_late():
    with open("/proc/self/maps") as maps:
        return any("openblas" in line for line in maps)
