"""gpurun beside torchrun: launch, recovery, three nodes, output. Prints Markdown tables.

    bench.py GPURUN [--keep] [startup] [launch] [recovery] [nodes] [output] [probe] [repeats] [live] [classifier]

The interpreter that runs this must have PyTorch, for torchrun; startup, which is
about gpurun with and without the GPUs' driver, needs none. Figures are medians;
those that are compared take turns, so that a machine whose speed drifts slows
both. The trainers import nothing: what is measured is the launcher.

The ratios are written to bench.json in the folder of GPURUN, and compared with those of .ci/bench.json,
which --keep replaces: the end lists what got worse by more than its spread.
"""

import fcntl
import json
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

PAIRS = 5  # of launches
STARTS = 15  # of gpurun with the GPUs' driver and without
RESCUES = 3  # of recoveries; a single one of those that end at BOUND
NODES = 3  # on this host, a launcher and a rank each
BOUND = 40.0  # seconds after which a recovery is given up
ROUNDS = 20  # of a process with the probe and without
RANKS = 8  # of the output
VOLUME = 8 << 20  # bytes that each of them writes

# One write a line: print() under python -u makes two, and torchrun's ranks tear each other's.
LAUNCH = "import os, time\nos.write(1, b'first line\\n')\ntime.sleep(1.0)\n"

# Each kind of end stands for one that is seen with real models: CUDA's message,
# a rank that hangs in what it registered with atexit (destroy_process_group), a
# peer that waits for it as in an NCCL collective, and ranks and loader workers
# that do not heed SIGTERM.
RECOVERY = """
import atexit, os, signal, subprocess, sys, time
kind, here, rank, world = (os.environ[name] for name in ("KIND", "HERE", "RANK", "WORLD_SIZE"))
def note(name, *words):
    with open(os.path.join(here, name + ".new"), "w") as file:
        print(*words, file=file)
    os.rename(os.path.join(here, name + ".new"), os.path.join(here, name))
if os.path.exists(os.path.join(here, "raised")):  # torchrun counts restarts on the node that failed only
    note("again" + rank, time.time())
    sys.exit(0)
pids = [os.getpid()]
if kind == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids += [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid for _ in range(2)]
note("begun" + rank, time.time())
note("pids" + rank, *pids)
while not all(os.path.exists(os.path.join(here, "pids" + str(r))) for r in range(int(world))):
    time.sleep(0.01)
if rank != os.environ["RAISES"] and kind != "raise":
    time.sleep(1000)
if kind == "atexit":
    atexit.register(time.sleep, 1000)
time.sleep(0.3)
if rank == os.environ["RAISES"]:
    note("raised", time.time())
raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; "
                   "14.80 GiB already allocated; 2.81 MiB free; 15.00 GiB reserved in total by PyTorch)")
"""
KINDS = {
    "raise": "both ranks raise and exit",
    "peer": "one raises, its peer waits for it",
    "atexit": "one raises and hangs in `atexit`",
    "deaf": "ranks and loader workers ignore SIGTERM",
}
RESCUE = """
[job]
script = "recovery.py"
args = ["--bs", "8"]
[launch]
nproc_per_node = 2
[knobs]
micro_batch_size = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
"""

AUTO = """
[job]
script = "launch.py"
[launch]
nproc_per_node = "auto"
"""

OUTPUT = """
import os, sys
line = b"x" * 99 + b"\\n"
block, left = line * 655, int(sys.argv[1])
while left > 0:
    left -= os.write(1, block[:left])
"""

# PyTorch 1.13 under Python 3.11 takes its own default of --redirects and --tee
# for none at all and fails; this gives it back what it means. Nothing else of
# torchrun is touched.
TORCHRUN = """
from torch.distributed.elastic.multiprocessing import api
if api.Std.from_str("0") is None:
    names = {"0": api.Std.NONE, "1": api.Std.OUT, "2": api.Std.ERR, "3": api.Std.ALL}
    api.Std.from_str = classmethod(lambda cls, text: names[text])
from torch.distributed.run import main
main()
"""


# How many times better gpurun is, by name: one number for each round.
RATIOS = {}
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench.json")


def summary(values):
    return {"ratio": round(statistics.median(values), 3), "low": round(min(values), 3), "high": round(max(values), 3)}


def worse(kept, now):
    """A line for each ratio that fell, where both medians are outside of the other's spread."""
    lines = []
    for name, new in now.items():
        old = kept.get(name)
        if old and new["ratio"] < old["low"] and new["high"] < old["ratio"]:
            before, after = (f"{one['ratio']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in (old, new))
            lines.append(f"worse: {name}: {before} kept, {after} now")
    return lines


def report(path, keep):
    """Writes the ratios, and lists what got worse. The ratios of parts that were not run stay kept."""
    now = {name: summary(values) for name, values in RATIOS.items() if values}
    kept = {}
    if os.path.exists(KEPT):
        with open(KEPT) as file:
            kept = json.load(file)
    lines = worse(kept, now)
    for target, ratios in [(path, now)] + ([(KEPT, {**kept, **now})] if keep else []):
        with open(target, "w") as file:
            json.dump(ratios, file, indent=1, sort_keys=True)
            file.write("\n")
    print(f"{len(now)} ratios in {path}; of the {len(kept.keys() & now.keys())} that are kept, {len(lines)} got worse by more than the spread")
    for line in lines:
        print(line)


def stat(pid):
    """The fields of /proc/PID/stat behind the name: state, parent, …; None for no process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None


def descendants(pid, but=()):
    """A process and what it brought forth, without what runs one of the scripts."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat(entry)):
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        try:
            with open(f"/proc/{at}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if at != pid and any(word.endswith(script) for word in words for script in but):
            continue
        found.append(at)
        todo += parents.get(at, [])
    return found


def figure(path, key):
    """A figure of a file in /proc, in MiB."""
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(key):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def environment(**more):
    return dict(os.environ, PYTHON_EXEC=sys.executable, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", **more)


def launchers(directory, gpurun, ranks, script, *arguments, flags=(), restarts=0):
    torchrun = [sys.executable, os.path.join(directory, "torchrun.py"), "--standalone", f"--nproc_per_node={ranks}",
                f"--max_restarts={restarts}", "--monitor_interval=0.1", *flags, script, *arguments]
    return {"torchrun": torchrun, "gpurun": [gpurun, f"--nproc-per-node={ranks}", *flags, script, *arguments]}


def launch(command, directory, env=None):
    """Seconds to the first line of a rank, the launcher's peak RSS in MiB, and what
    all of its processes hold, pages that they share counted once (Pss)."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=directory, env=env or environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = process.stdout.readline()
    seconds = time.perf_counter() - start
    time.sleep(0.3)
    peak = figure(f"/proc/{process.pid}/status", "VmHWM:")
    held = sum(figure(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in descendants(process.pid, but=(b"launch.py",)))
    process.stdout.read()
    if process.wait() != 0 or line != b"first line\n":
        sys.exit(f"{command[0]} failed: exit code {process.returncode}, first line {line!r}")
    return seconds, peak, held


def devices():
    """The UUIDs of the GPUs that the driver's own tool lists; none without it."""
    try:
        listed = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.startswith("GPU-")]


def compare_starts(directory, gpurun):
    """What the GPUs' driver adds to the way to the first line. By a UUID, and under a
    ceiling, gpurun has to wait for the driver; else it must not."""
    one = [gpurun, "--nproc-per-node=1", "launch.py"]
    seen = {name: value for name, value in environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    rows = {"GPUs hidden: no driver": (one, environment())}
    if uuids := devices():
        rows[f"{len(uuids)} GPUs, one rank"] = (one, seen)
        rows[f"{len(uuids)} GPUs, `nproc_per_node = \"auto\"`"] = ([gpurun, "auto.toml"], seen)
        rows["one GPU by its UUID"] = (one, dict(seen, CUDA_VISIBLE_DEVICES=uuids[0]))
    for command, env in rows.values():
        launch(command, directory, env)  # warm caches
    results = {name: [] for name in rows}
    for _ in range(STARTS):
        for name, (command, env) in rows.items():
            results[name].append(launch(command, directory, env))
    print("| gpurun | first line | fastest | peak RSS |")
    print("|---|--:|--:|--:|")
    for name, found in results.items():
        first, peak = [result[0] for result in found], [result[1] for result in found]
        print(f"| {name} | {1000 * statistics.median(first):.0f} ms | {1000 * min(first):.0f} ms | {statistics.median(peak):.1f} MiB |", flush=True)


def compare_launches(directory, gpurun):
    print("| ranks | first line: bare Python | torchrun | gpurun | | peak RSS: torchrun | gpurun | | all its processes (Pss): torchrun | gpurun | |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for ranks in (1, 2, 8):
        commands = dict(launchers(directory, gpurun, ranks, "launch.py"), python=[sys.executable, "launch.py"])
        for command in commands.values():
            launch(command, directory)  # warm caches
        results = {name: [] for name in commands}
        for _ in range(PAIRS):
            for name, command in commands.items():
                results[name].append(launch(command, directory))
        for i, what in enumerate(("first line", "peak RSS", "memory of all processes")):
            RATIOS[f"{what}, {ranks} ranks, torchrun"] = [a[i] / b[i] for a, b in zip(results["torchrun"], results["gpurun"])]
        RATIOS[f"first line, {ranks} ranks, bare Python"] = [a[0] / b[0] for a, b in zip(results["python"], results["gpurun"])]
        them, us, bare = ([statistics.median(column) for column in zip(*results[name])] for name in ("torchrun", "gpurun", "python"))
        cells = [f"{bare[0]:.3f} s | {them[0]:.2f} s | {us[0]:.3f} s | {them[0] / us[0]:.0f}×"]
        cells += [f"{a:.0f} MiB | {b:.1f} MiB | {a / b:.1f}×" for a, b in zip(them[1:], us[1:])]
        print(f"| {ranks} | {' | '.join(cells)} |", flush=True)


def alive(pid):
    fields = stat(pid)
    return fields is not None and fields[0] != "Z"


def read(path):
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []


class Rescue:
    """A job that runs out of memory on one rank, under one launcher or one a node. Seconds
    from its start until all ranks run, and from the exception until the first attempt's
    ranks and workers are gone, until the next attempt's first rank runs and until all of
    them do; None for never within BOUND."""

    def __init__(self, commands, directory, kind, ranks=2, raises=0, env=lambda here, node: {}):
        with tempfile.TemporaryDirectory(dir=directory) as self.here:
            start = time.time()
            self.ranks, self.launchers = range(ranks), []
            for node, command in enumerate(commands):
                more = dict(env(self.here, node), KIND=kind, HERE=self.here, RAISES=str(raises))
                self.launchers.append(subprocess.Popen(command, cwd=directory, env=environment(**more),
                                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
            self.begun = self.raised = self.gone = self.again = self.all = None
            self.pids = []
            self.watch(start)
            left = [pid for pid in self.pids if alive(pid)]
            self.left = len(left)
            for pid in [*left, *(pid for one in self.launchers if one.poll() is None for pid in descendants(one.pid))]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for one in self.launchers:
                one.wait()
        if self.raised is None:
            sys.exit(f"{commands[0][0]} failed with {kind}: no rank raised")

    def noted(self, name):
        """What the ranks noted under a name, of those that did."""
        return [words for rank in self.ranks if (words := read(os.path.join(self.here, f"{name}{rank}")))]

    def watch(self, start):
        end = start + 60
        while time.time() < end and (self.gone is None or self.all is None):
            time.sleep(0.004)
            if self.raised is None and (raised := read(os.path.join(self.here, "raised"))):
                self.raised = float(raised[0])
                self.begun = max(float(words[0]) for words in self.noted("begun")) - start
                self.pids = [int(pid) for words in self.noted("pids") for pid in words]
                end = self.raised + BOUND
            if self.raised is None:
                continue
            if self.gone is None and not any(map(alive, self.pids)):
                self.gone = time.time() - self.raised
            starts = [float(words[0]) - self.raised for words in self.noted("again")]
            self.again = min(starts, default=None)
            self.all = max(starts) if len(starts) == len(self.ranks) else None
            if self.all is not None and all(one.poll() is not None for one in self.launchers) and time.time() - self.raised - self.all > 3:
                break  # the launchers are through; what is alive now stays


def ratio(them, us):
    return f"{them / us:.2f}×" if them < us else f"{them / us:.1f}×"


def seconds(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if len(known) == len(values) else None


def compare_rescues(directory, gpurun):
    print("| out of memory, 2 ranks | all gone: torchrun | gpurun | | next attempt runs: torchrun | gpurun | |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for kind, words in KINDS.items():
        commands = launchers(directory, gpurun, 2, "recovery.py", "--bs", "8", restarts=1)
        commands["gpurun"] = [gpurun, "--quiet", "rescue.toml"]
        results = {name: [] for name in commands}
        for _ in range(RESCUES):
            for name, command in commands.items():
                if not any(one.gone is None or one.again > 20 for one in results[name]):
                    results[name].append(Rescue([command], directory, kind))
        cells = []
        for what in ("gone", "again"):
            pairs = [(getattr(a, what), getattr(b, what)) for a, b in zip(results["torchrun"], results["gpurun"])]
            RATIOS[f"{what}, {words}"] = [a / b for a, b in pairs if a is not None and b]
            them, us = (seconds([getattr(one, what) for one in results[name]]) for name in ("torchrun", "gpurun"))
            lost = max(one.left for one in results["torchrun"])
            shown = f"{them:.2f} s" if them is not None else f"never, {lost} live on" if what == "gone" else f"> {BOUND:.0f} s"
            mine = f"{us:.2f} s" if us is not None else f"> {BOUND:.0f} s"
            times = "" if us is None or what == "gone" and them is None else ("> " if them is None else "") + ratio(them or BOUND, us)
            cells += [shown, mine, times]
        print(f"| {words} | {' | '.join(cells)} |", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def compare_nodes(directory, gpurun):
    """Several launchers as the nodes of one job, of which the last one's rank runs out of
    memory while the others wait for it. torchrun restarts it with the same settings."""
    def of_gpurun(here, node):
        return {"GPURUN_NNODES": str(NODES), "GPURUN_NODE_RANK": str(node), "GPURUN_HEAD": "127.0.0.1", "GPURUN_SECRET": "0123456789abcdef" * 4,
                "GPURUN_JOB_ID": here, "XDG_STATE_HOME": here}

    results = {"torchrun": [], "gpurun": []}
    for _ in range(PAIRS):
        flags = (f"--nnodes={NODES}", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}", "--rdzv_id=bench")
        torchrun = [word for word in launchers(directory, gpurun, 1, "recovery.py", "--bs", "8", flags=flags, restarts=1)["torchrun"] if word != "--standalone"]
        results["torchrun"].append(Rescue([torchrun] * NODES, directory, "peer", NODES, NODES - 1))
        results["gpurun"].append(Rescue([[gpurun, "--quiet", "nodes.toml"]] * NODES, directory, "peer", NODES, NODES - 1, of_gpurun))
    print(f"| {NODES} nodes on this host, a rank each; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores | torchrun | gpurun | |")
    print("|---|--:|--:|--:|")
    for what, words in (("begun", "from the start to the first line on all nodes"), ("gone", "from out of memory on the last node until all ranks are gone"),
                        ("all", "to the first line of the next attempt on all nodes")):
        them, us = (seconds([getattr(one, what) for one in results[name]]) for name in results)
        cells = [f"> {BOUND:.0f} s" if one is None else f"{one:.2f} s" for one in (them, us)]
        print(f"| {words} | {' | '.join(cells)} | {'' if them is None or us is None else ratio(them, us)} |", flush=True)


def used(pids):
    """CPU seconds of processes so far, and their memory in MiB, pages that they share counted once."""
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in filter(None, map(stat, pids)))
    return ticks / os.sysconf("SC_CLK_TCK"), sum(figure(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in pids)


def flood(command, directory):
    """MiB/s that reach the console, CPU seconds of the launcher, its most memory, and
    the part of all lines that reach the console, in percent."""
    process = subprocess.Popen(command, cwd=directory, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    cpu = largest = 0.0
    over = threading.Event()

    def watch():
        nonlocal cpu, largest
        while not over.wait(0.05):
            c, m = used(descendants(process.pid, but=(b"output.py",)))
            cpu, largest = max(cpu, c), max(largest, m)

    watcher = threading.Thread(target=watch)
    watcher.start()
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
    first = last = None
    pieces = []  # counted later, so that this reader is as fast as one can be
    while piece := os.read(process.stdout.fileno(), 1 << 20):
        last = time.perf_counter()
        first = first or last
        pieces.append(piece)
    lines = sum(piece.count(b"\n") for piece in pieces)
    over.set()
    watcher.join()
    if process.wait() != 0:
        sys.exit(f"{command[0]} failed: exit code {process.returncode}")
    shown = 100 * lines / (RANKS * (VOLUME // 100))
    return lines * 100 / 2**20 / max(last - first, 1e-3), cpu, largest, min(shown, 100)


def compare_floods(directory, gpurun):
    print(f"| {RANKS} ranks × {VOLUME >> 20} MiB, `--tee 3` | torchrun | gpurun | |")
    print("|---|--:|--:|--:|")
    commands = launchers(directory, gpurun, RANKS, "output.py", str(VOLUME // 100 * 100), flags=("--tee=3",))
    results = {name: [] for name in commands}
    for _ in range(3):
        for name, command in commands.items():
            results[name].append(flood(command, directory))
    them, us = ([statistics.median(column) for column in zip(*results[name])] for name in ("torchrun", "gpurun"))
    for i, what in enumerate(("throughput", "CPU time", "memory")):
        pairs = list(zip(results["torchrun"], results["gpurun"]))
        RATIOS[f"output, {what}"] = [b[i] / a[i] if i == 0 else a[i] / max(b[i], 0.01) for a, b in pairs]
    print(f"| throughput | {them[0]:.0f} MiB/s | {us[0]:.0f} MiB/s | {us[0] / them[0]:.1f}× |")
    print(f"| CPU time of the launcher | {them[1]:.2f} s | {us[1]:.2f} s | {them[1] / max(us[1], 0.01):.1f}× |")
    print(f"| lines shown, of those in the logs | {them[3]:.0f} % | {us[3]:.0f} % | |")
    print(f"| memory of the launcher (Pss) | {them[2]:.0f} MiB | {us[2]:.0f} MiB | {them[2] / us[2]:.1f}× |")


# What the probe costs a process: CPU time until its first line, until torch is there
# (that of plain torch taken off by the pair), and of a step that does next to nothing.
PROBED = """
import time
start = time.process_time()
import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(1, 1)
def step():
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
imported = time.process_time()
for _ in range(5):  # the probe measures the first ones
    step()
steady = time.process_time()
for _ in range(2000):
    step()
print("COST", start, imported - start, steady - imported, (time.process_time() - steady) / 2000)
"""


def compare_probes(directory, gpurun):
    with open(os.path.join(directory, "probed.py"), "w") as file:
        file.write(PROBED)
    results = {"true": [], "false": []}
    for _ in range(ROUNDS):
        for probe, values in results.items():
            name = os.path.join(directory, f"probe-{probe}.toml")
            with open(name, "w") as file:
                file.write(f'[job]\ncommand = "{sys.executable} probed.py"\n[launch]\nprobe = {probe}\n')
            out = subprocess.run([gpurun, "--quiet", name], cwd=directory, env=environment(), capture_output=True, text=True)
            if out.returncode != 0:
                sys.exit(f"{name} failed: {out.stderr}")
            values.append([float(word) for word in out.stdout.split("COST ")[1].split()])
    print(f"| the probe's part, CPU time, median of {ROUNDS} pairs (quartiles) | | |")
    print("|---|--:|--:|")
    rows = ("until the first line of a script", "the import of torch, a model, an optimizer", "the first five steps", "each step after them")
    for i, row in enumerate(rows):
        plain = statistics.median(v[i] for v in results["false"])
        apart = sorted(a[i] - b[i] for a, b in zip(results["true"], results["false"]))
        low, middle, high = (1e3 * q for q in statistics.quantiles(apart, n=4))
        note = f"{middle / 50:.4%} of a step of 50 ms" if i == 3 else f"of {1e3 * plain:.0f} ms"
        print(f"| {row} | {middle:.3f} ms ({low:.3f} to {high:.3f}) | {note} |")


def compare_repeats(directory, gpurun):
    """What the guard that repeats a step costs where nothing fails, without gpurun around it."""
    probe = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "launcher", "probe")
    out = subprocess.run([sys.executable, "-B", os.path.join(probe, "testdata", "inplace_cost.py"), probe], capture_output=True, text=True, check=True)
    found = json.loads(out.stdout)
    print(f"| a step that may be repeated in place, CPU time more than without; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores | |")
    print("|---|--:|")
    print(f"| 300 parameters | {found['plain']:.0f} µs |")
    print(f"| 300 parameters, 75 BatchNorms, a counter and a buffer that change | {found['changing']:.0f} µs |")


# A job with steps of 50 ms, each of which it prints: the line is taken away and drawn again at
# every one of them.
WATCHED = """
import sys, time
for n in range(1, 100000):
    print(f"step {n}/100000 loss 0.25", flush=True)
    time.sleep(0.05)
"""
WATCHED_JOB = """
[job]
script = "watched.py"
[launch]
nproc_per_node = %d
[progress]
step = '(?P<step>[0-9]+)/(?P<total>[0-9]+) loss (?P<loss>[0-9.]+)'
"""
WATCH = 20.0  # seconds


def watch(command, directory):
    """CPU seconds a second of gpurun on a terminal of 80 columns."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(command, cwd=directory, env=environment(TERM="xterm"), stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    threading.Thread(target=lambda: drain(master), daemon=True).start()
    time.sleep(3)
    begun, start = used([process.pid])[0], time.perf_counter()
    time.sleep(WATCH)
    took, spent = time.perf_counter() - start, used([process.pid])[0] - begun
    process.terminate()
    process.wait()
    return spent / took


def drain(fd):
    try:
        while os.read(fd, 1 << 16):
            pass
    except OSError:
        pass  # nobody writes any more


def compare_watching(directory, gpurun):
    """What the line on a terminal, and the files beside it, cost gpurun."""
    with open(os.path.join(directory, "watched.py"), "w") as file:
        file.write(WATCHED)
    print("| on a terminal, 20 steps a second and rank | no line (`--quiet`) | with the line | |")
    print("|--:|--:|--:|--:|")
    for ranks in (1, 8):
        with open(os.path.join(directory, "watched.toml"), "w") as file:
            file.write(WATCHED_JOB % ranks)
        results = {"quiet": [], "line": []}
        for _ in range(3):
            for name, values in results.items():
                values.append(watch([gpurun, *(["--quiet"] if name == "quiet" else []), "watched.toml"], directory))
        quiet, line = (100 * statistics.median(values) for values in results.values())
        print(f"| {ranks} ranks | {quiet:.2f} % of a core | {line:.2f} % | {line - quiet:+.2f} % |", flush=True)


def compare_classifiers(directory, gpurun):
    """How fast a log is classified, compared with grep -E for the same patterns."""
    out = subprocess.run([os.environ.get("GO") or "go", "test", "-run", "^$", "-bench", "LargeLog|Grep", "-count", str(PAIRS), "./strategy/cause"],
                         cwd=os.path.dirname(os.path.dirname(KEPT)), capture_output=True, text=True, check=True).stdout
    ours, grep = ([float(speed) for speed in re.findall(rf"^Benchmark{name}\S*\s.*?([\d.]+) MB/s", out, re.M)] for name in ("LargeLog", "Grep"))
    RATIOS["classifier, grep"] = [a / b for a, b in zip(ours, grep)]
    print("| an ordinary log | gpurun | grep -E | |")
    print("|---|--:|--:|--:|")
    us, them = statistics.median(ours), statistics.median(grep) if grep else float("nan")
    print(f"| classified | {us:.0f} MB/s | {them:.0f} MB/s | {us / them:.1f}× |")


def main():
    gpurun = os.path.abspath(sys.argv[1])
    words = sys.argv[2:]
    keep = "--keep" in words
    parts = {"startup": compare_starts, "launch": compare_launches, "recovery": compare_rescues, "nodes": compare_nodes,
             "output": compare_floods, "probe": compare_probes, "repeats": compare_repeats, "live": compare_watching, "classifier": compare_classifiers}
    files = {"launch.py": LAUNCH, "recovery.py": RECOVERY, "output.py": OUTPUT, "torchrun.py": TORCHRUN, "rescue.toml": RESCUE,
             "nodes.toml": RESCUE.replace("nproc_per_node = 2", "nproc_per_node = 1"), "auto.toml": AUTO}
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            with open(os.path.join(directory, name), "w") as file:
                file.write(text)
        for name in [word for word in words if word != "--keep"] or parts:
            parts[name](directory, gpurun)
            print(flush=True)
    report(os.path.join(os.path.dirname(gpurun), "bench.json"), keep)


if __name__ == "__main__":
    main()
