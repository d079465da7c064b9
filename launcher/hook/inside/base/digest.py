# The digest of an allocator's snapshot: which lines of the code held the memory, in
# snapshot-<k>.json, which is all that gpurun reads of it. It takes the snapshot as plain data,
# and needs no PyTorch.
import bisect
import re

PIECES = 200000  # blocks, and entries of the history, that are looked up: some microseconds each
HOOK = re.compile(r"/probe-[^/]*/inside/(\w+/)?\w+\.py$")
TOP, LEAKS, LARGE = 8, 4, 32  # places, leaks and large blocks that are listed
LARGE_SHARE = 8  # per cent of all, from which on a block is listed by itself
LEAK_SHARE, LEAK_STEPS = 1, 3  # per cent of all, and steps that left a block behind
FRAMES, FILE, FUNCTION = 256, 400, 100  # bounds of a stack and of its names
REQUEST_ROUNDING, SEGMENT_ROUNDING = 512, 2 << 20  # the allocator's, of a request and of the segment for it
ALWAYS = 'launch.snapshot = "always" records all of them'

NOWHERE = ("", 0, "", "", False)  # a place: file, line, function, what it holds, whether it is attention


def digest(found):
    """Return the digest of torch.cuda.memory._snapshot(), with the probe's words under "gpurun"."""
    told = found["gpurun"]
    segments = [s for s in found["segments"] if s["device"] == told["device"]]
    held, sums = blocks(segments)
    trace = (found["device_traces"][told["device"]:] or [[]])[0]
    request = failed(told, trace)
    sums.update({"from": told["from"], "requested_bytes": told["wanted"] or request["bytes"], "allowed_bytes": told["allowed"]})

    held, left = held[:PIECES], held[PIECES:]
    known = {}
    places = [place_of(b["frames"], known) for b in held]
    without = sum(b["size"] for b in held if not b["frames"])
    sums["recorded"] = any(b["frames"] for b in held)
    sums["top"] = top(held, places, sums["recorded"] and told["recording"] and not told["from"])
    sums["large"] = large(held, places, request, sums["reserved_bytes"] + sums["requested_bytes"])
    sums["leaks"] = leaks(held, places, trace[-PIECES:], told["marks"], sums["allocated_bytes"])
    sums["missing"] = missing(told, sums, without)
    if left and not sums["missing"]:
        sums["missing"] = "the lines of %.1f GiB: of %d blocks only the largest %d were looked up" % (
            sum(b["size"] for b in left) / (1 << 30), len(held) + len(left), len(held))
    return sums


def blocks(segments):
    """Return the blocks that are in use, the largest first where there are too many, and sums of all."""
    held = []
    sums = {"reserved_bytes": 0, "allocated_bytes": 0, "free_bytes": 0, "largest_free_bytes": 0}
    for segment in segments:
        sums["reserved_bytes"] += segment["total_size"]
        for b in segment["blocks"]:
            size = b["size"]
            if b["state"] == "inactive":
                sums["free_bytes"] += size
                sums["largest_free_bytes"] = max(sums["largest_free_bytes"], size)
            elif size > 0:
                sums["allocated_bytes"] += size
                held.append(block(b))
    if len(held) > PIECES:
        held.sort(key=lambda b: -b["size"])
    return held, sums


def block(b):
    requested, frames = b.get("requested_size", 0), b.get("frames") or []
    if not 0 < requested <= b["size"]:
        requested = b["size"]
    return {"address": b.get("address", 0), "size": b["size"], "requested": requested, "frames": frames}


def failed(told, trace):
    """Return the request that failed. The history, where there is one, knows its size and its stack
    better than the allocator's observer does."""
    bytes, rounded, place = told["wanted"], SEGMENT_ROUNDING - 1, place_of(told["stack"], {})
    for entry in reversed(trace):
        if entry["action"] == "oom":
            bytes, rounded = entry["size"], REQUEST_ROUNDING - 1
            own = place_of(entry.get("frames") or [], {})
            place = own if own[0] else place
            break
    return dict(named(place), bytes=bytes, rounded_bytes=rounded, attention=place[4])


def top(held, places, whole):
    """Return the places that hold most. What has no stack is grouped by its blocks' size or, where
    all was recorded, is of a thread without Python."""
    sums = {}
    for b, place in zip(held, places):
        key = key_of(b, place)
        if whole and not place[0]:
            key = ("", 0, "", "gradients, and what else the backward pass makes"), 0
        was = sums.setdefault(key, [0, 0, b["requested"]])
        was[0] += b["size"]
        was[1] += 1
        if was[2] != b["requested"]:
            was[2] = 0
    found = [dict(named(place), bytes=size, count=count, each_bytes=each) for (place, _), (size, count, each) in sums.items()]
    return sorted(found, key=lambda a: (-a["bytes"], a["file"], a["line"], a["count"], a["function"], a["what"]))[:TOP]


def large(held, places, request, all):
    """Return the blocks, and the request, that are a large part of all by themselves: their size
    shows what they are. Weights and optimizer state are known already."""
    alone = [(b["requested"], place) for b, place in zip(held, places) if b["requested"] * 100 >= all * LARGE_SHARE and not place[3]]
    found = [dict(named(place), bytes=size, count=1, attention=place[4]) for size, place in alone]
    if request["bytes"] > 0 and not request["what"]:
        found.append(request)
    return sorted(found, key=lambda a: -a["bytes"])[:LARGE]


def leaks(held, places, trace, marks, all):
    """Return the places whose blocks come with every step and are not freed by any. That needs the
    history, and the times at which steps ended."""
    first, last = window(trace, marks)
    if last - first + 1 < LEAK_STEPS:
        return []
    born = {}
    for entry in trace:
        if entry["action"] == "alloc" and entry.get("time_us", 0) > 0:
            born[entry["addr"]] = entry["time_us"]
        elif entry["action"] == "free_completed":
            born.pop(entry["addr"], None)
    kept = {}
    for b, place in zip(held, places):
        at = born.get(b["address"])
        step = bisect.bisect_left(marks, at) if at is not None else -1
        if first <= step <= last and not place[3]:
            kept.setdefault(key_of(b, place), {}).setdefault(step, []).append(b["size"])
    found = []
    for (place, _), steps in kept.items():
        size = sum(map(sum, steps.values()))
        # What is kept of one step only until the next is no leak.
        if len(steps) >= LEAK_STEPS and 4 * len(steps) >= 3 * (last - first + 1) and size * 100 >= all * LEAK_SHARE:
            found.append(dict(named(place), bytes=size, count=sum(map(len, steps.values())), per_step_bytes=size // len(steps)))
    return sorted(found, key=lambda a: (-a["bytes"], a["file"], a["line"]))[:LEAKS]


def window(trace, marks):
    """Return the first and the last step that the history has whole: step n is between the marks n-1
    and n. The first of all also makes what every other one uses, such as the optimizer's state."""
    began = next((entry["time_us"] for entry in trace if entry.get("time_us", 0) > 0), None)
    if began is None or not marks or marks != sorted(marks):  # the clock was set back
        return 0, -1
    return bisect.bisect_left(marks, began) + 1, len(marks) - 1


def missing(told, sums, without):
    """Return which facts are unknown, and how to get them."""
    if not sums["allocated_bytes"]:
        return ""
    if not sums["recorded"] and told["foreign"]:
        return "the job records allocations by itself, without their stacks"
    if not sums["recorded"]:
        return "no allocation was recorded with its stack: " + ALWAYS
    if told["until"] > 0 and without * 4 > sums["allocated_bytes"]:
        return "%.1f GiB were allocated after step %d, when recording had ended, or by the backward pass, and have no line: %s" % (
            without / (1 << 30), told["until"], ALWAYS)
    return ""


# The line that represents a stack.

def key_of(b, place):
    """Return a key of an allocation: its place, or without one its size."""
    return (place[:4], 0) if place[0] else (NOWHERE[:4], b["requested"])


def named(place):
    return {"file": place[0], "line": place[1], "function": place[2], "what": place[3], "module": module_of(place[0])}


def place_of(stack, known):
    """Return a stack's place. PyTorch gives the same dictionary for the same frame: known has what
    was found for their identities, while the snapshot lives."""
    key = tuple(map(id, stack[:FRAMES]))
    place = known.get(key)
    if place is None:
        place = known[key] = innermost(frames_of(stack[:FRAMES]))
    return place


def frames_of(stack):
    """Return a stack's frames, the innermost first, without those of the probe."""
    frames = []
    for each in stack:
        file = cut(each.get("filename") or "", FILE).replace("\\", "/")
        if file and not is_probe(file):
            frames.append((file, each.get("line") or 0, cut(each.get("name") or "", FUNCTION)))
    return frames


def cut(text, most):
    return text if len(text) <= most else text[:most] + "…"


def innermost(frames):
    """Finds the innermost line outside PyTorch. A line of the user's code replaces a library's
    if it is inside a module's call: a helper's line says little of a model, and a line that
    trains by a framework says nothing."""
    if not frames:
        return NOWHERE
    outside = next((i for i, f in enumerate(frames) if not is_torch(f[0]) and not is_python(f[0])), None)
    own = next((i for i, f in enumerate(frames) if not is_installed(f[0]) and not is_python(f[0])), None)
    chosen = outside or 0
    if own is not None and (outside is None or any(is_call(*f) for f in frames[own:])):
        chosen = own
    file, line, function = frames[chosen]
    return file, line, function, what_of(frames), any(is_attention(*f) for f in frames[:chosen + 1])


def what_of(frames):
    """Return what memory a stack allocated, where the stack shows it."""
    for file, line, function in frames:
        if is_call(file, line, function):
            return ""  # inside a forward
        if "torch/optim/" in file and "lr_scheduler" not in file or "/bitsandbytes/optim/" in file:
            return "optimizer state"
        if (file.endswith("torch/nn/modules/module.py") and function in ("_apply", "to", "cuda", "half", "bfloat16", "float")
                or "torch/nn/modules/" in file and function in ("__init__", "reset_parameters")
                or function.endswith("from_pretrained")):
            return "weights"
    return ""


def module_of(file):
    """Return a file's name for people: in a package, the path from the package's folder."""
    return file.rpartition("-packages/")[2] if "-packages/" in file else file.rpartition("/")[2]


def is_probe(file):
    return HOOK.search(file) is not None


def is_torch(file):
    return "-packages/" in file and module_of(file).startswith("torch/") or "/torch/_inductor/" in file or "/torchinductor_" in file


def is_installed(file):
    return "/site-packages/" in file or "/dist-packages/" in file or "/torchinductor_" in file


def is_python(file):
    """Return whether a file is of Python's own library, or there is no file."""
    if file.startswith("<") or ".py" not in file:
        return True
    rest = file.partition("/lib/python3")[2]
    return "/" in rest and not is_installed(file)


def is_call(file, line, function):
    """Return whether a frame is the call of a module."""
    return file.endswith("torch/nn/modules/module.py") and ("call_impl" in function or function.endswith("__call__"))


def is_attention(file, line, function):
    text = (file + " " + function).lower()
    return "attention" in text or "attn" in text or text.endswith(" softmax")
