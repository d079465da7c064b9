# The variable of PyTorch's allocator, as gpurun sets it for a rank: it is taken back until torch is imported, so that a
# script that sets its own where there is none finds none. What the script has set by then stays.
import os

from ..base import process, rank

LIMIT = "per_process_memory_fraction"  # of limits.device_memory: it is added to the script's own settings


def withhold(told):
    """Runs at the start of a process in which one of the variables is set."""
    order = rank.read(told["GPURUN_PROBE_ORDERS"]).get("allocator")
    name = order and order["name"]
    if order and os.environ.get(name) == order["value"]:  # else a program above has set another
        rank.start["withheld"] = name, order["value"]
        put(name, order.get("before"))
    rank.start["allocator"] = [os.environ.get(each) for each in rank.ALLOCATOR]


def give():
    """Runs before torch is imported."""
    name, value = rank.start.pop("withheld", (None, None))
    before = rank.start.pop("allocator", (None, None))
    own = [each for each, was in zip(rank.ALLOCATOR, before) if os.environ.get(each) != was]
    if own:
        text = os.environ.get(own[-1]) or ""
        wide = "expandable_segments:true" in text.replace(" ", "").lower()
        process.settle("allocator", "expandable" if wide else "default", own[-1], process.FRAMEWORK)
        process.note("failed", {"allocator": "the script sets %s itself" % own[-1]})
        limit = [word for word in (value or "").split(",") if word.startswith(LIMIT)]
        if limit and LIMIT not in text:
            put(own[-1], ",".join([text.rstrip(", ")] * bool(text) + limit))
    elif name:
        put(name, value)


def put(name, value):
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
