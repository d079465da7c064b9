"""What a process holds: on the device, pinned, and on the host. Without a GPU all of the device's are 0."""

import ctypes
import gc
import os
import time

import torch

LEFT = 64 << 20  # bytes that a row may leave behind on the device


class Meter:
    """Peaks since the last mark, relative to what was held when it was made."""

    def __init__(self):
        self.cuda = torch.cuda.is_available()
        clean(self.cuda)
        self.base = self.allocated()
        self.peak = self.reserved = 0
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.reset_peak_host_memory_stats()
        reset_host()
        self.host_before = host("VmRSS")

    def allocated(self):
        return torch.cuda.memory_allocated() if self.cuda else 0

    def held(self):
        self.wait()
        return self.allocated() - self.base

    def mark(self):
        """Gives the peak since the last mark, and begins anew."""
        self.wait()
        if not self.cuda:
            return 0
        peak = torch.cuda.max_memory_allocated() - self.base
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        return peak

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def now(self):
        self.wait()
        return time.perf_counter()

    def rest(self):
        """Gives what a whole row is told of beside the allocator's instants."""
        found = {"peak_reserved": self.reserved, "host_before": self.host_before, "host_peak": host("VmHWM")}
        found["locked"] = host("VmLck")  # what DeepSpeed's asynchronous I/O pins itself
        if not self.cuda:
            return found
        stats = torch.cuda.host_memory_stats()
        found["pinned_peak"] = stats.get("allocated_bytes.peak", 0)  # blocks, rounded up
        found["pinned_active"] = stats.get("active_bytes.peak", 0)
        found["retries"] = torch.cuda.memory_stats().get("num_alloc_retries", 0)
        found["outside"] = nvml() - torch.cuda.memory_reserved()
        return found


def clean(cuda):
    """Gives back what can be given back, so that a row begins as a fresh process does."""
    gc.collect()
    if cuda:
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch._C._host_emptyCache()
    ctypes.CDLL(None).malloc_trim(0)


def left():
    """Gives what is held on the device between rows, once what somebody forgot is freed.

    An engine of ZeRO-3 keeps its buckets after its destroy; no tensor outlives its row.
    """
    cuda = torch.cuda.is_available()
    gc.collect()
    for forgotten in [o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter)]:
        try:
            storage = forgotten.untyped_storage()
            if storage.nbytes() > 1 << 20:
                storage.resize_(0)
        except Exception:  # meta, or not resizable: it is counted below
            pass
    clean(cuda)
    return torch.cuda.memory_allocated() if cuda else 0


def nvml():
    """Gives what the driver says that this process holds on its device, 0 where it does not."""
    import pynvml

    pynvml.nvmlInit()
    # By its identity: CUDA_VISIBLE_DEVICES may number the devices anew.
    handle = pynvml.nvmlDeviceGetHandleByUUID("GPU-%s" % torch.cuda.get_device_properties().uuid)
    found = {p.pid: p.usedGpuMemory or 0 for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    return found.get(os.getpid(), 0)


def host(name):
    with open("/proc/self/status") as f:
        return next((int(line.split()[1]) << 10 for line in f if line.startswith(name + ":")), 0)


def reset_host():
    """Lets VmHWM begin anew; where the kernel refuses it, the row's host_peak is the process's."""
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass
