# How much memory a process holds of what it trains in, and the most that it held. Nothing
# is reset: the peaks that the job itself reads from PyTorch stay unchanged. The exception is a pass
# that ran out of memory and was repeated.
import os
import sys


def of(device):
    """Return the meter for a device: of PyTorch's allocator on a GPU, else of the process."""
    return CUDA(device) if device is not None and device.type == "cuda" else Host()


class CUDA:
    """The memory that PyTorch's caching allocator gives and holds on one device."""

    resets = True  # the job may reset the peak

    def __init__(self, device):
        self.cuda = sys.modules["torch"].cuda
        self.device = device.index if device.index is not None else self.cuda.current_device()

    def read(self):
        """Return (bytes held, the most since the last reset)."""
        held = self.stats().get("allocated_bytes", {}).get("all", {})
        return int(held.get("current", 0)), int(held.get("peak", 0))

    def held(self):
        """Return the bytes held."""
        return self.read()[0]

    def given(self):
        """Return the bytes given and held now. PyTorch's own functions read all figures of the allocator for each."""
        stats = self.stats()
        return tuple(int(stats.get(name, {}).get("all", {}).get("current", 0)) for name in ("allocated_bytes", "reserved_bytes"))

    def renew(self):
        """Forget the peak so far."""
        self.cuda.reset_peak_memory_stats(self.device)

    def begin(self):
        """Begin to measure the peak of a step; return whether that can be done."""
        self.renew()
        return True

    def most(self):
        """Return the peak since then."""
        return self.read()[1]

    def known(self):
        """Return whether the peak is known."""
        return True

    def now(self):
        """Return (the device's number, bytes given, bytes held, the most given since somebody
        reset it, how often the cache was given back to find room)."""
        stats = self.stats()
        given, held = (stats.get(name, {}).get("all", {}) for name in ("allocated_bytes", "reserved_bytes"))
        return self.device, int(given.get("current", 0)), int(held.get("current", 0)), int(given.get("peak", 0)), int(stats.get("num_alloc_retries", 0))

    def stats(self):
        return self.cuda.memory_stats_as_nested_dict(self.device)  # to sort them into a flat one, as memory_stats() does, takes longer

    def whole(self):
        """Return the figures of the whole allocator. held_bytes is its memory now."""
        stats = self.stats()
        held = stats.get("reserved_bytes", {}).get("all", {})
        return {
            "reserved_bytes": int(held.get("peak", 0)), "held_bytes": int(held.get("current", 0)), "retries": int(stats.get("num_alloc_retries", 0)),
            "total_bytes": self.total(), "allowed_bytes": self.allowed(),
        }

    def total(self):
        return int(self.cuda.get_device_properties(self.device).total_memory)

    def allowed(self):
        """Return what the allocator is held to by a share of the device, 0 for none."""
        ask = getattr(self.cuda, "get_per_process_memory_fraction", None)
        share = float(ask(self.device)) if ask is not None else 1.0  # older versions know no limit
        return int(share * self.total()) if 0 < share < 1 else 0

    def holds(self, tensor):
        return tensor.device.type == "cuda" and tensor.device.index == self.device

    def idle(self):
        """Return whether the device has done all that it was given."""
        return self.cuda.current_stream(self.device).query()

    def timer(self):
        event = self.cuda.Event(enable_timing=True)
        event.record(self.cuda.current_stream(self.device))
        return event

    def over(self, timer):
        """Return whether the device has come so far."""
        return timer.query()

    def between(self, first, last):
        """Return the seconds between two timers, 0 while the device has not come so far."""
        return first.elapsed_time(last) / 1e3 if self.over(last) else 0.0


class Host:
    """What the process holds in host memory: under a limit of its data (RLIMIT_DATA) what
    that counts, which is what it may allocate, else what it has touched, without files."""

    resets = False

    def __init__(self):
        try:
            import resource

            soft, infinite = resource.getrlimit(resource.RLIMIT_DATA)[0], resource.RLIM_INFINITY
        except (ImportError, ValueError, OSError):
            soft, infinite = 0, 0
        self.limit = 0 if soft == infinite else soft
        self.ended = 0

    def read(self):
        """Return (bytes held, the most so far). The kernel keeps the most of all mappings: what
        is no data, such as libraries, is taken to be as now."""
        held, peak, size = status(*(("VmData", "VmPeak", "VmSize") if self.limit else ("RssAnon", "VmHWM", "VmRSS")))
        most = held + peak - size if peak > self.ended else held
        return held, max(most, 0)

    def held(self):
        """Return the bytes held, more quickly: in pages, where those of data have the stack among them."""
        size, resident, shared, _, _, data, _ = map(int, TEXT[:text_of("statm")].split())
        return PAGE * (data if self.limit else resident - shared)

    def renew(self):
        """Forget the peak so far: until it is exceeded, only what is held at the time is known."""
        self.ended, = status("VmPeak" if self.limit else "VmHWM")

    def begin(self):
        """The kernel forgets only the peak of what is resident."""
        if not self.limit:
            return False
        high["resident"] = resident()
        try:
            fd = os.open("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:
            return False
        try:
            os.write(fd, b"5")
        finally:
            os.close(fd)
        return True

    def most(self):
        data, peak, resident = status("VmData", "VmHWM", "VmRSS")
        return data + max(peak - resident, 0)

    def known(self):
        return status("VmPeak" if self.limit else "VmHWM")[0] > self.ended

    def now(self):
        """Return the same as a GPU's meter, where there is no number and no cache."""
        held, peak = self.read()
        return -1, held, 0, peak, 0

    def whole(self):
        pages = os.sysconf("SC_PHYS_PAGES") * PAGE
        return {"held_bytes": self.read()[0], "total_bytes": pages, "allowed_bytes": self.limit}

    def holds(self, tensor):
        return tensor.device.type == "cpu"

    def timer(self):
        import time

        return time.perf_counter()

    def over(self, timer):
        return True

    def between(self, first, last):
        return last - first


high = {"resident": 0}  # before the kernel was made to forget it


def resident():
    """Return the most host memory that was resident so far."""
    return max(high["resident"], *status("VmHWM"))


# What the kernel writes of a process. It is there from the start: where memory has run out, there may be none for it.
TEXT = bytearray(1 << 13)
PAGE = os.sysconf("SC_PAGE_SIZE")


def text_of(name):
    """Read a file about the process; return its length."""
    fd = os.open("/proc/self/" + name, os.O_RDONLY)
    try:
        return os.readv(fd, [TEXT])
    finally:
        os.close(fd)


def status(*names):
    """Return figures of /proc/self/status, in bytes."""
    size = text_of("status")
    return [field(name, size) for name in names]


def field(name, size):
    """Return a figure of the text, in bytes, 0 for one that the kernel does not give."""
    word = b"\n%s:" % name.encode()
    at = TEXT.find(word, 0, size)
    return int(TEXT[at + len(word):TEXT.index(b"kB", at)]) << 10 if at >= 0 else 0


class Peaks:
    """Return the meter's one peak by phases: it is known for phases in which it rose. The
    others held no more."""

    def __init__(self, meter):
        self.meter, self.last, self.most = meter, 0, 0
        self.held = self.take()[0]

    def take(self):
        """Ends a phase. Returns (bytes held, the most in it, 0 where it did not rise)."""
        self.held, peak = self.meter.read()
        # Below the last one it is where the job has reset it: it is of this phase then.
        rose = peak > self.last or peak < self.last and self.meter.resets
        self.last, self.most = peak if self.meter.resets else max(self.last, peak), max(self.most, peak)
        return self.held, peak if rose else 0
