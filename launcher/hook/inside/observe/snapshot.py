# What PyTorch's CUDA allocator holds when memory runs out: snapshot-<k>.pickle, in the form
# of torch.cuda.memory._dump_snapshot, with the probe's facts added under "gpurun", and
# snapshot-<k>.json, its digest.
# Allocations are recorded with their stacks for the first optimizer steps, or throughout.
import collections
import functools
import gc
import inspect
import os
import sys
import time

from ..base import digest, process, report, session, wall, wrapping
from . import memory


STEPS = 3  # that are recorded, unless all are
ENTRIES = 100000  # of the history
KEPT = 2  # snapshots at once
MOST = 32 << 20  # bytes of each
WRITTEN = 8  # snapshots of one process that outlives them; then only of requests of other sizes
SECONDS = 20.0  # that all of them may take
FRAMES = 64  # of the stack of the request

# "busy" is read after each optimizer step: it is false once there is nothing to do.
state: dict = {"busy": False, "recording": False, "foreign": False, "until": 0, "kept": [], "sizes": [], "spent": 0.0, "inside": False}
marks = collections.deque(maxlen=4096)  # when steps ended, in microseconds


def arrived(torch):
    """Called when torch is there: the rest waits until CUDA is in use."""
    state["mode"] = process.orders().get("record") or "none"
    if state["mode"] not in ("first", "all"):
        return
    cuda = torch.cuda
    state["torch"] = torch
    if cuda.is_initialized():
        begin()
    else:
        cuda._queued_calls.append((begin, []))


def begin():
    """Begins when CUDA does. An error here never reaches the job."""
    process.guarded(start)()


def start():
    if not process.here():
        process.fork()  # it trains where it uses a GPU that its parent does not
    torch = state["torch"]
    why = refused(torch)
    if why:
        if session.current.speaks:
            report.save(process.file("snapshot-0.json"), {"missing": why})
        return
    torch._C._cuda_attach_out_of_memory_observer(wall.alone(observed))
    watch(torch.cuda.memory)
    state["foreign"] = getattr(torch._C, "_cuda_isHistoryEnabled", lambda: False)()
    if not state["foreign"]:
        record(True)
    state["busy"] = True


def refused(torch):
    """Return why the allocator cannot be recorded; empty if it can."""
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"):
        if name in os.environ:
            return "%s turns PyTorch's caching allocator off, which is what snapshots are of" % name
    history = getattr(torch.cuda.memory, "_record_memory_history", None)
    if history is None or "stacks" not in inspect.signature(history).parameters:
        return "PyTorch %s does not record with stacks what the allocator gives: snapshots need 2.1" % torch.__version__
    backend = getattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")()
    if backend != "native":
        return "snapshots are of PyTorch's own allocator, and the job's is %s" % backend
    return ""


# The history.

def watch(memory):
    """Does nothing where the job records the history itself."""
    plain = memory._record_memory_history

    @functools.wraps(plain)
    def theirs(*args, **kwargs):
        state.update(foreign=True, recording=False)
        return plain(*args, **kwargs)

    state.update(plain=plain, unwatch=wrapping.put(memory, "_record_memory_history", theirs))


def record(on):
    """Turns the recording on or off. Turned off, it forgets what was freed; blocks that are in use keep the stacks that they have."""
    if on:
        state["plain"]("all", context="alloc", stacks="python", max_entries=ENTRIES)
    else:
        state["plain"](None)
    state["recording"] = on


def stepped(n):
    """Runs after an optimizer step, while there is something to do."""
    if state["kept"]:
        outlived()
    if state["recording"]:
        marks.append(int(time.time() * 1e6))
        if state["mode"] == "first" and n >= STEPS:
            process.guarded(lambda: record(False))()
            state.update(recording=False, until=n)
            marks.clear()
    if state["mode"] == "first" and not state["recording"]:
        if not state["foreign"]:
            process.guarded(state["unwatch"])()
        state["busy"] = False


def outlived():
    """Removes the written files: the job has continued."""
    for stem in state["kept"]:
        for end in (".json", ".pickle"):
            try:
                os.unlink(stem + end)
            except OSError:
                pass
    del state["kept"][:]


def keep():
    """Keep the snapshot of a failure that the process itself answered, until a later one fails."""
    del state["kept"][:]


# The snapshot.

def observed(device, wanted, allowed, free):
    """Called by the allocator when memory runs out, in the thread that requested it.

    Not every request that fails ends the job: cuDNN asks for workspaces of several sizes, and takes
    an algorithm that needs none. Which one is raised is not known here: the newest are kept."""
    if state["inside"] or session.current.repeating or not process.here() or not session.current.speaks:
        return
    if len(state["sizes"]) >= WRITTEN and wanted in state["sizes"] or state["spent"] > SECONDS:
        return
    state["inside"] = True
    began, collects = time.monotonic(), gc.isenabled()
    gc.disable()  # what it would end might allocate, and there is much to go through
    try:
        take(device, wanted, allowed, free)
    except KeyboardInterrupt:
        import _thread

        _thread.interrupt_main()  # for the job, not for the allocator
    except BaseException:
        pass
    finally:
        if collects:
            gc.enable()
        state["spent"] += time.monotonic() - began
        state["inside"] = False


def take(device, wanted, allowed, free):
    found = dict(state["torch"].cuda.memory._snapshot())
    found["gpurun"] = {
        "pid": os.getpid(), "rank": process.number("RANK"), "time": time.time(), "device": int(device), "wanted": int(wanted),
        "allowed": int(allowed), "free": int(free), "phase": phase(), "steps": session.current.steps, "recording": state["recording"], "from": 0,
        "until": state["until"], "marks": list(marks), "stack": stack(), "foreign": state["foreign"], "trimmed": "",
    }
    write(found)


def phase():
    now = session.current.memory
    return "load" if now is None else memory.running(now)


def stack():
    """Return the stack of the request; of one in the backward pass, which runs in a thread
    without Python, that of the main thread."""
    frames = outside(sys._getframe())
    if not frames:
        import threading

        frames = outside(sys._current_frames().get(threading.main_thread().ident))
    return frames


def outside(frame):
    """Return the frames of a stack that are not the probe's, innermost first."""
    frames = []
    while frame is not None and len(frames) < FRAMES:
        path = frame.f_code.co_filename
        if not path.startswith(wall.HERE):
            frames.append({"filename": path, "line": frame.f_lineno or 0, "name": frame.f_code.co_name})
        frame = frame.f_back
    return frames


def write(found):
    """Writes the digest, and then the snapshot itself, which fitted() may change. It replaces the
    oldest one that is kept."""
    stem = state["kept"].pop(0) if len(state["kept"]) == KEPT else process.file("snapshot-%d" % len(state["kept"]))
    state["kept"].append(stem)
    state["sizes"].append(found["gpurun"]["wanted"])
    state["busy"] = True
    report.save(stem + ".json", digested(found))
    text = fitted(found)
    if text is not None:
        report.write(stem + ".pickle", text)


def digested(found):
    try:
        return digest.digest(found)
    except Exception as e:
        return {"missing": "the allocator's snapshot has no digest: %s: %s" % (type(e).__name__, str(e)[:200])}


def fitted(found):
    """Return the text of the file, without what makes it too long: the oldest entries of the
    history, then all of it, then the stacks."""
    import pickle

    text, traces = pickle.dumps(found, 4), found.get("device_traces") or []
    total = sum(map(len, traces))
    for share in (0.8 * MOST / len(text), 0) if total else ():
        if len(text) > MOST:
            found["device_traces"] = [t[len(t) - int(len(t) * share):] for t in traces]
            found["gpurun"]["trimmed"] = "the history is the latest %d of %d entries, for the size of the file" % (sum(map(len, found["device_traces"])), total)
            text = pickle.dumps(found, 4)
    if len(text) > MOST:
        for segment in found["segments"]:
            segment["frames"] = []
            for block in segment.get("blocks", []):
                block["frames"] = []
        found["gpurun"]["trimmed"] = "history and stacks are omitted, because of the file's size"
        text = pickle.dumps(found, 4)
    return text if len(text) <= MOST else None
