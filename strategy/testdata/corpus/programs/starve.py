"""Take away memory, so that the next allocation of some size fails."""

import resource

import torch

held = []


def starve(device, leave=0):
    """Leave at most that many bytes, and what is too small to matter.

    On a GPU the card is filled; on a CPU the address space is limited to what
    it is now.
    """
    if torch.device(device).type == "cpu":
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + leave, resource.RLIM_INFINITY))
        return
    spare = torch.empty(leave, dtype=torch.uint8, device=device) if leave else None
    size = 1 << 36
    while size >= 1 << 18:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device=device))
        except RuntimeError:
            size //= 2
    del spare


def feed(device):
    """Give back what starve took."""
    held.clear()
    if torch.device(device).type == "cpu":
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
