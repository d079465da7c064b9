# A job on the CPU, with a stand-in for PyTorch's CUDA allocator: functions of the same names
# and signatures that note how they are called. Nothing here asks a GPU. Of several ways, joined
# by commas, each is a fork.
import gc
import json
import os
import sys
import weakref

import torch
from torch import nn

way, number = sys.argv[1], ""
if "," in way:
    for way in way.split(","):
        child = os.fork()
        if child == 0:
            number = "-%d" % os.getpid()
            break
        os.waitpid(child, 0)
    else:
        sys.exit(1)
heard, observers = [], []
TORCH = os.path.dirname(torch.__file__) + "/"


def record(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, device=None, clear_history=False):
    heard.append({"enabled": enabled, "context": context, "stacks": stacks, "max_entries": max_entries})


def record_2_0(enabled, record_context=True, trace_alloc_max_entries=1, trace_alloc_record_context=False, device=None, record_context_cpp=False):
    heard.append({"enabled": enabled, "entries": trace_alloc_max_entries, "record": trace_alloc_record_context})


def record_1_13(enabled, device=None):
    heard.append({"enabled": enabled})


def snapshot(device=None):
    if way == "raises":
        raise RuntimeError("cudaMallocAsync does not yet support snapshot")
    if way == "recurses":
        observers[0](0, 1, 1, 1)
    frames = [{"filename": TORCH + "nn/functional.py", "line": 1, "name": "linear"}, {"filename": __file__, "line": 7, "name": "forward"}]
    blocks = [{"address": 4096, "size": 8 << 20, "requested_size": 8 << 20, "state": "active_allocated", "frames": frames}]
    segment = {"device": 0, "address": 4096, "total_size": 20 << 20, "stream": 0, "segment_type": "large", "blocks": blocks, "frames": frames}
    def entry(i):
        return {"action": "alloc", "addr": i << 20, "size": 8 << 20, "stream": 0, "frames": [dict(frames[1], line=i)] * 20, "time_us": i << 22}
    count = {"large": 20000, "huge": 10}.get(way, 3)
    if way == "huge":
        segment["blocks"] = [dict(blocks[0], frames=[{"filename": "x" * 1000 + str(i), "line": i, "name": "f"}]) for i in range(4000)]
    return {"segments": [segment], "device_traces": [[entry(i) for i in range(count)]]}


memory = torch.cuda.memory
memory._record_memory_history = {"legacy": record_2_0, "oldest": record_1_13}.get(way, record)
memory._snapshot = snapshot
memory.get_allocator_backend = lambda: "pluggable" if way == "pluggable" else "native"
torch._C._cuda_attach_out_of_memory_observer = observers.append
torch._C._cuda_isHistoryEnabled = lambda: way == "already"
ours = [call for call, _ in torch.cuda._queued_calls if getattr(getattr(call, "__code__", None), "co_filename", "").endswith("snapshot.py")]
for call in ours:
    call()  # as torch.cuda._lazy_init does


def runs_out(wanted=3 << 30):
    for observer in observers:
        if observer(0, wanted, 24 << 30, 1 << 20) is not None:
            raise SystemExit("an observer gives something")


def workspaces(times):
    """What cuDNN does: it asks for workspaces, and takes an algorithm that needs none."""
    for _ in range(times):
        runs_out(17 << 30)
        runs_out(9 << 30)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        held = x + 1
        known.append(weakref.ref(held))
        if n in {"late": [6], "twice": [2, 2, 2], "dies": [2], "outlived": [2, 5]}.get(way, [1]):
            workspaces({"workspaces": 2, "many workspaces": 20}.get(way, 0))
            runs_out()
            if way in ("twice",):
                runs_out(), runs_out()
            if way not in ("outlived",):
                raise RuntimeError("CUDA out of memory. Tried to allocate 3.00 GiB")
        return self.linear(x)


def repeated():
    """Two of the calls of a model with blocks run out of memory, which the process answers itself."""
    import loops

    def fail(where):
        # Not a variable of this program: a repeated call has those again that the first one had.
        if os.environ.get("FAILS"):
            del os.environ["FAILS"]
            runs_out()
            raise RuntimeError("CUDA out of memory. Tried to allocate 3.00 GiB")

    def batches():
        for i, x in enumerate(loops.batches(2) + loops.batches(6, rows=2, length=3)):
            if i in (1, 3):
                os.environ["FAILS"] = "1"
            yield x

    loops.fail = fail
    loops.train(loops.Net(), batches())


if way == "repeated":
    repeated()
    sys.exit()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
n, known, stays = 0, [], False
gc.disable()  # what is caught is to be freed without the collector
try:
    for n in range(8):
        if way == "own" and n == 1:
            memory._record_memory_history(None)
        try:
            net(torch.ones(2, 4)).sum().backward()
        except RuntimeError:
            if way != "caught":
                raise
        stays = stays or known[-1]() is not None
        optimizer.step()
finally:
    print(json.dumps({"way": way, "number": number, "heard": heard, "observers": len(observers), "stays": stays, "ours": len(ours), "restored": memory._record_memory_history in (record, record_2_0, record_1_13)}), flush=True)
    if number:
        os._exit(1)  # Python takes a second to take PyTorch apart in a fork
