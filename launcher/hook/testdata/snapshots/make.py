"""Makes the snapshots of the tests: python make.py FOLDER.

A small caching allocator stands in for PyTorch's: segments of what is asked for, rounded up,
blocks split and freed, a history with times. What it gives has the form of
torch.cuda.memory._snapshot() of PyTorch 2.5, the probe's words beside it, and is written by
Python's own pickle.
"""
import os
import pickle
import sys

MIB, GIB = 1 << 20, 1 << 30
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/"
SEGMENT = 20 * MIB


def frame(filename, line, name):
    return {"filename": filename, "line": line, "name": name}


CALL = [frame(TORCH + "nn/modules/module.py", 1751, "_call_impl"), frame(TORCH + "nn/modules/module.py", 1740, "_wrapped_call_impl")]
MAIN = [frame("/home/u/job/train.py", 60, "main"), frame("/home/u/job/train.py", 90, "<module>")]
ROOT = [frame("/runs/r/attempt-0/probe-1234/inside/rootcalls.py", 46, "run")]
LINEAR = [frame(TORCH + "nn/modules/linear.py", 125, "forward")] + CALL


def inside(line, name="forward", inner=()):
    """A stack in the model's own file, called as a module."""
    return list(inner) + [frame("/home/u/job/model.py", line, name)] + CALL + ROOT + MAIN


WEIGHTS = [frame(TORCH + "nn/modules/module.py", 1329, "convert"), frame(TORCH + "nn/modules/module.py", 942, "_apply"),
           frame(TORCH + "nn/modules/module.py", 1343, "to")] + MAIN
STATE = [frame(TORCH + "optim/adamw.py", 141, "_init_group"), frame(TORCH + "optim/adamw.py", 232, "step"),
         frame(TORCH + "optim/optimizer.py", 493, "wrapper")] + [frame("/home/u/job/train.py", 72, "main"), MAIN[1]]
LOSS = [frame(TORCH + "nn/functional.py", 3494, "cross_entropy"), frame("/home/u/job/train.py", 66, "loss_of")] + MAIN
NONE = []


class Allocator:
    def __init__(self, limit):
        self.limit, self.segments, self.trace, self.at, self.now = limit, [], [], 0x7f0000000000, 1_700_000_000_000_000
        self.marks, self.recording = [], True

    def note(self, action, addr, size, frames):
        self.now += 10
        if self.recording:
            self.trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "frames": frames, "time_us": self.now, "pool_id": (0, 0)})

    def reserved(self):
        return sum(s["total_size"] for s in self.segments)

    def allocate(self, size, frames):
        """Gives a block; None where memory runs out."""
        rounded = -(-size // 512) * 512
        frames = frames if self.recording else []
        for s in self.segments:
            for i, b in enumerate(s["blocks"]):
                if b["state"] == "inactive" and b["size"] >= rounded:
                    return self.place(s, i, size, rounded, frames)
        total = max(SEGMENT, -(-rounded // (2 * MIB)) * 2 * MIB)
        if self.reserved() + total > self.limit:
            if self.recording:
                self.trace.append({"action": "oom", "device_free": self.limit - self.reserved(), "size": rounded, "stream": 0, "frames": frames, "time_us": self.now})
            self.wanted = total  # as the observer is told
            return None
        s = {"device": 0, "address": self.at, "total_size": total, "allocated_size": 0, "active_size": 0, "requested_size": 0, "stream": 0,
             "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames,
             "blocks": [{"address": self.at, "size": total, "requested_size": 0, "state": "inactive", "frames": []}]}
        self.at += total
        self.segments.append(s)
        self.note("segment_alloc", s["address"], total, frames)
        return self.place(s, 0, size, rounded, frames)

    def place(self, s, i, size, rounded, frames):
        b = s["blocks"][i]
        if b["size"] > rounded:
            s["blocks"].insert(i + 1, {"address": b["address"] + rounded, "size": b["size"] - rounded, "requested_size": 0, "state": "inactive", "frames": []})
        b.update(size=rounded, requested_size=size, state="active_allocated", frames=frames)
        self.note("alloc", b["address"], size, frames)
        return b

    def free(self, b):
        self.note("free_requested", b["address"], b["requested_size"], [])
        self.note("free_completed", b["address"], b["requested_size"], [])
        b.update(state="inactive", requested_size=0, frames=[])

    def step(self):
        self.now += 50_000
        self.marks.append(self.now)
        self.now += 10

    def stop(self):
        """Recording ends: what was freed is forgotten."""
        self.recording, self.trace, self.marks = False, [], []

    def told(self, **more):
        for s in self.segments:
            active = [b for b in s["blocks"] if b["state"] != "inactive"]
            s.update(allocated_size=sum(b["size"] for b in active), active_size=sum(b["size"] for b in active), requested_size=sum(b["requested_size"] for b in active))
        told = {"pid": 42, "rank": 0, "time": 1.7e9, "device": 0, "wanted": self.wanted, "allowed": self.limit, "free": self.limit - self.reserved(),
                "phase": "forward", "steps": len(self.marks), "recording": self.recording, "from": 0, "until": 0, "marks": self.marks, "stack": [], "foreign": False, "trimmed": ""}
        told.update(more)
        return {"segments": self.segments, "device_traces": [self.trace], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}, "gpurun": told}


def model(a):
    for _ in range(12):
        a.allocate(28 * MIB, WEIGHTS)


def transformer():
    """An ordinary one: the activations of the blocks fill the memory in the first forward."""
    a = Allocator(4 * GIB)
    model(a)
    for _ in range(24):
        for stack, size in ((inside(52, inner=LINEAR), 36 * MIB), (inside(88, inner=LINEAR), 144 * MIB), (inside(90), 48 * MIB)):
            if a.allocate(size, stack) is None:
                return a.told(stack=stack)


def logits():
    """The loss over a large vocabulary: 16 x 2048 x 50257 in 32 bits."""
    a = Allocator(20 * GIB)
    model(a)
    for _ in range(12):
        a.allocate(1 * GIB, inside(88, inner=LINEAR))
    a.allocate(16 * 2048 * 50257 * 2, inside(104, inner=LINEAR))
    assert a.allocate(16 * 2048 * 50257 * 4, LOSS) is None
    return a.told(stack=LOSS)


def leak():
    """24 MiB of each step are kept by a list."""
    a = Allocator(1 * GIB)
    model(a)
    a.step_n = 0
    kept = [frame("/home/u/job/train.py", 78, "remember")] + MAIN
    for n in range(5):
        held = [a.allocate(60 * MIB, inside(88, inner=LINEAR)) for _ in range(6)]
        if n == 0:
            a.allocate(56 * MIB, STATE)
        a.allocate(24 * MIB, kept)
        gradients = a.allocate(64 * MIB, NONE)
        for b in held + [gradients]:
            a.free(b)
        a.step()
    while a.allocate(60 * MIB, inside(88, inner=LINEAR)) is not None:
        pass
    return a.told(stack=inside(88))


def fragmented():
    """Half of many small segments lies free; a request finds no piece that is large enough."""
    a = Allocator(2 * GIB)
    held = [a.allocate(10 * MIB, inside(40)) for _ in range(2 * GIB // SEGMENT * 2 - 2)]
    for b in held[1::2]:
        a.free(b)
    assert a.allocate(300 * MIB, inside(88)) is None
    return a.told(stack=inside(88))


def late():
    """After many steps: what was allocated since the third has no stack."""
    a = Allocator(2 * GIB)
    model(a)
    a.allocate(56 * MIB, STATE)
    a.stop()
    for _ in range(1000):
        if a.allocate(60 * MIB, NONE) is None:
            return a.told(until=3, steps=412, stack=inside(88))


if __name__ == "__main__":
    for make in (transformer, logits, leak, fragmented, late):
        with open(os.path.join(sys.argv[1], make.__name__ + ".pickle"), "wb") as f:
            pickle.dump(make(), f, 4)
