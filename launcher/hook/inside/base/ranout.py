# How memory ran out: in which phase of a step, and how much was requested.
import re


SIZE = re.compile(r"[Tt]ried to allocate ([0-9.]+) ?(bytes|KiB|MiB|GiB)?")
ALLOWED = re.compile(r"([0-9.]+) (KiB|MiB|GiB) allowed")
UNITS = {"bytes": 1, None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def reason(value):
    """Return the exception by which memory ran out: the one given, or what it was raised
    from; None if neither is an out-of-memory error."""
    for _ in range(5):
        if value is None or is_one(value):
            return value
        value = value.__cause__ or value.__context__
    return None


def is_one(value):
    if isinstance(value, MemoryError) or type(value).__name__ in ("OutOfMemoryError", "AcceleratorError") and "out of memory" in text(value):
        return True
    words = text(value)
    return isinstance(value, RuntimeError) and (
        "CUDA out of memory" in words or "HIP out of memory" in words or "DefaultCPUAllocator: can't allocate memory" in words or
        "DefaultCPUAllocator: not enough memory" in words or words == "std::bad_alloc")  # raised by C++ for small requests


def text(value):
    try:
        return str(value)[:2048]
    except Exception:
        return ""


def figure(expression, value):
    """Return a number of bytes in the exception's message, 0 for none."""
    found = expression.search(text(value))
    try:
        return int(float(found.group(1)) * UNITS[found.group(2)]) if found else 0
    except ValueError:
        return 0


def frames_of(trace):
    """Return the frames of a traceback, the innermost first."""
    found = []
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found[::-1]


def frames_from(frame):
    """Return a running frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back
