# How much memory this process can still have on a device, and of the host.
import os
import sys

from . import meters

SHARE = 0.8  # of the host's available memory


def free(device):
    """Return the bytes that this process can still have on a device: what is free of it, or below the
    allocator's limit, and what the allocator holds unused. On the CPU what is left of the limit of
    the process's data; None without a limit."""
    if device.type != "cuda":
        host = meters.of(None)
        return max(host.limit - host.read()[0], 0) if host.limit else None
    cuda = sys.modules["torch"].cuda
    left, total = cuda.mem_get_info(device)
    given, reserved = meters.of(device).given()
    fraction = getattr(cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)
    return max(min(left + reserved - given, int(total * fraction) - given), 0)


def allowed(device):
    """Return the bytes that this process may have on a device, 0 where that is not known."""
    if device.type == "cuda":
        found = meters.of(device)
        return found.allowed() or found.total()
    return meters.of(None).limit if device.type == "cpu" else 0


def host():
    """Return the bytes of the host's memory that each rank of this node may use."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return int(min(available()) * SHARE) // max(ranks, 1)


def available():
    """Return what the host has to spare, and each cgroup that bounds this process."""
    found = []
    with open("/proc/meminfo") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) << 10)
    return found + cgroups()


def cgroups(root="/sys/fs/cgroup", own="/proc/self/cgroup"):
    """Return the room below the limits of this process's cgroups, of either version."""
    found = []
    try:
        with open(own) as f:
            lines = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return found
    for number, controllers, path in lines:
        if number == "0":
            names = ("memory.max", "memory.current", "inactive_file")
            found += walk(root, path, names)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += walk(os.path.join(root, "memory"), path, names)
    return found


def walk(root, path, names):
    """Return the room of a cgroup and of those above it; in a container the path may lie outside."""
    found, folder = [], os.path.normpath(root + "/" + path)
    if not os.path.isdir(folder):
        folder = root
    while folder.startswith(root):
        limit, used = number(folder, names[0]), number(folder, names[1])
        if limit is not None and used is not None and limit < 1 << 60:
            found.append(max(limit - used + cache(folder, names[2]), 0))
        folder = os.path.dirname(folder)
    return found


def number(folder, name):
    try:
        with open(os.path.join(folder, name)) as f:
            return int(f.read())
    except (OSError, ValueError):  # "max"
        return None


def cache(folder, name):
    """Return the bytes of files that the kernel gives up before it kills."""
    try:
        with open(os.path.join(folder, "memory.stat")) as f:
            return sum(int(line.split()[1]) for line in f if line.split()[0] == name)
    except (OSError, ValueError, IndexError):
        return 0
