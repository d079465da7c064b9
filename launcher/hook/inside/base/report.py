# How an exception is described, and how a file is written.
import os
import sys

from . import masked, rank


def describe(told, kind, value, trace):
    """Adds the exception's full name, its message, its traceback and its reasons."""
    told["type"] = name(kind)
    try:
        told["message"] = str(value)[:8192]
    except Exception:
        told["message"] = ""
    import traceback

    lines = traceback.format_exception(kind, value, trace)
    told["traceback"] = "".join([line[:8192] for line in lines])[-65536:]
    told["frames"] = frames(trace)
    told["chain"] = chain(value, trace)


def frames(trace):
    """Return a traceback without the exception's own words, which may hold any text."""
    import traceback

    lines = traceback.format_list(traceback.extract_tb(trace)[-64:])
    return "Traceback (most recent call last):\n" + "".join([line[:2048] for line in lines])[-8192:]


def chain(value, trace):
    """Return the exceptions that the exception was raised from, the nearest first, at most 4.

    Explicit is "raise ... from"; caught says that the frame that raised the one is the
    frame that had caught the other.
    """
    found, seen = [], [value]
    while len(found) < 4:
        inner = getattr(value, "__cause__", None)
        explicit = inner is not None
        if not explicit:
            inner = getattr(value, "__context__", None)
        if inner is None or any(inner is other for other in seen):
            break
        link = {"type": name(type(inner)), "message": "", "explicit": explicit, "caught": False}
        try:
            link["message"] = str(inner)[:8192]
        except Exception:
            pass
        below = getattr(inner, "__traceback__", None)
        if below is not None:
            link["frames"] = frames(below)
            link["caught"] = trace is not None and innermost(trace) is below.tb_frame
        found.append(link)
        seen.append(inner)
        value, trace = inner, below
    return found


def innermost(trace):
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def name(kind):
    """Return module.Class, the class alone for built-in ones."""
    if kind.__module__ in ("__main__", "builtins", "exceptions"):
        return kind.__name__
    return kind.__module__ + "." + kind.__name__


def devices():
    """Return what PyTorch knows about the memory of the devices that it uses."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    found = []
    try:
        if cuda is None or not cuda.is_initialized():
            return found
        current = cuda.current_device()
        for i in range(cuda.device_count()):
            if i != current and not cuda.max_memory_reserved(i):
                continue  # to ask the driver would claim memory there
            found.append({
                "device": i, "current": i == current,
                "allocated": cuda.memory_allocated(i), "reserved": cuda.memory_reserved(i),
            })
            found[-1]["free"], found[-1]["total"] = cuda.mem_get_info(i)
    except Exception:
        pass  # an older PyTorch, or a device that is lost
    return found


def save(path, told):
    """Writes a file atomically, without secrets."""
    import json

    write(path, json.dumps(masked.copy(told)).encode("ascii"))


def write(path, text):
    """Writes a file atomically."""
    part = path + ".part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, rank.mode(path))
    try:
        while text:
            text = text[os.write(fd, text):]
    except OSError:
        os.unlink(part)
        raise
    finally:
        os.close(fd)
    os.rename(part, path)
