# A job that fills a GPU's memory in one of some ways, each under a limit of its own. Lines
# that a test looks for end with a comment that names them.
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

way = sys.argv[1]
GIB, MIB = 1 << 30, 1 << 20
LIMIT = {"ordinary": 4, "late": 4, "logits": 5, "leak": 3, "fragmented": 3, "outlived": 4}
VOCABULARY, LENGTH, WIDTH = 50257, 1024, 512


def limit(gib):
    torch.cuda.set_per_process_memory_fraction(gib * GIB / torch.cuda.get_device_properties(0).total_memory)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.up(x)  # UP
        h = F.gelu(h)  # ACT
        return x + self.down(h)


class Net(nn.Module):
    def __init__(self, blocks, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.h:
            x = block(x)
        return self.head(x)


def step(net, optimizer, batch, vocabulary):
    ids = torch.randint(vocabulary, (batch, LENGTH), device="cuda")
    out = net(ids)
    loss = F.cross_entropy(out.view(-1, vocabulary), ids.view(-1))  # LOSS
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    return ids


def train(blocks=8, vocabulary=512):
    net = Net(blocks, vocabulary).cuda()  # WEIGHTS
    return net, torch.optim.AdamW(net.parameters(), lr=1e-4)


def main():
    limit(LIMIT[way])
    net, optimizer = train(vocabulary=VOCABULARY if way == "logits" else 512)
    kept = []
    if way == "logits":
        step(net, optimizer, 10, VOCABULARY)
    if way == "ordinary":
        step(net, optimizer, 64, 512)
    for n in range(200 if way == "leak" else 6):
        step(net, optimizer, 4, 512)
        if way == "leak":
            kept.append(torch.zeros(48 * MIB, dtype=torch.uint8, device="cuda"))  # LEAK
        if way == "outlived" and n == 2:
            try:
                step(net, optimizer, 64, 512)
            except torch.cuda.OutOfMemoryError:
                pass
    if way == "late":
        step(net, optimizer, 64, 512)
    if way == "fragmented":
        held = []
        try:
            while torch.cuda.memory_reserved() < 2.7 * GIB:
                held.append(torch.zeros(6 * MIB, dtype=torch.uint8, device="cuda"))  # PIECE
        except torch.cuda.OutOfMemoryError:
            pass
        held = held[::3]
        torch.zeros(512 * MIB, dtype=torch.uint8, device="cuda")  # WANTED
    print("TRAINED")


def cost():
    """Times steps of some 50 ms with the history off and on, in turns, and the hook and the digest, whose
    file is the next argument, by themselves."""
    import importlib.util
    import pickle

    memory = torch.cuda.memory
    on = lambda: memory._record_memory_history("all", context="alloc", stacks="python", max_entries=100000)
    net, optimizer = train(blocks=12)
    batch = 8
    while True:
        step(net, optimizer, batch, 512)
        began = time.perf_counter()
        step(net, optimizer, batch, 512)
        if time.perf_counter() - began > 0.045 or batch > 512:
            break
        batch += 4
    count = lambda: torch.cuda.memory_stats()["allocation.all.allocated"]
    times, before = {False: [], True: []}, count()
    step(net, optimizer, batch, 512)
    allocations = count() - before
    for turn in range(20):
        on() if turn % 2 else memory._record_memory_history(None)
        for _ in range(10):
            began = time.perf_counter()
            step(net, optimizer, batch, 512)
            times[bool(turn % 2)].append(time.perf_counter() - began)

    def each():  # seconds of an allocation and its free, some frames deep
        def deep(n):
            if n:
                return deep(n - 1)
            began = time.perf_counter()
            for _ in range(20000):
                torch.empty(1024, device="cuda")
            return (time.perf_counter() - began) / 20000
        return min(deep(25) for _ in range(3))

    on()
    recorded = each()
    began = time.perf_counter()
    found = memory._snapshot()
    snapshot = time.perf_counter() - began
    spec = importlib.util.spec_from_file_location("digest", sys.argv[2])
    digest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digest)
    found["gpurun"] = {"device": 0, "wanted": 1 << 30, "allowed": 0, "from": 0, "until": 0, "marks": [], "stack": [], "foreign": False, "recording": True}
    began = time.perf_counter()
    digest.digest(found)
    digested = time.perf_counter() - began
    began = time.perf_counter()
    text = pickle.dumps(found, 4)
    pickled = time.perf_counter() - began
    memory._record_memory_history(None)
    plain = each()
    median = lambda values: sorted(values)[len(values) // 2]
    print("COST " + json.dumps({
        "step_ms_off": median(times[False]) * 1e3, "step_ms_on": median(times[True]) * 1e3, "allocations_a_step": allocations,
        "hook_us": (recorded - plain) * 1e6, "hook_ms_a_step": (recorded - plain) * 1e3 * allocations,
        "hook_percent": 100 * (recorded - plain) * allocations / median(times[False]),
        "entries": len(found["device_traces"][0]), "snapshot_s": snapshot, "digest_s": digested, "pickle_s": pickled, "pickle_mib": len(text) / MIB,
    }))


if __name__ == "__main__":
    cost() if way == "cost" else main()
