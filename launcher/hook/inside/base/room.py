# How much memory this process can still have on a device.
import sys

from . import meters


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
