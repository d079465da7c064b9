"""Launch time and memory of gpurun beside torchrun, in the same run.

    bench.py GPURUN

The interpreter that runs this must have PyTorch. Each figure is the median of
the pairs; torchrun and gpurun take turns, so that a machine whose speed drifts
slows both. The trainer imports nothing: what is measured is the launcher.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

# One write a line: print() under python -u makes two, and torchrun's ranks tear each other's.
TRAINER = "import os, time\nos.write(1, b'first line\\n')\ntime.sleep(1.0)\n"
PAIRS = 5

# PyTorch 1.13 under Python 3.11 takes its own default of --redirects and --tee
# for none at all and fails; this gives it back what it means. Nothing else of
# torchrun is touched.
TORCHRUN = """
from torch.distributed.elastic.multiprocessing import api
if api.Std.from_str("0") is None:
    api.Std.from_str = classmethod(lambda cls, text: cls.NONE)
from torch.distributed.run import main
main()
"""


def tree(pid):
    """The launcher's own processes: all but the ranks, which run the trainer."""
    found = []
    for child in [pid] + [int(c) for c in children(pid)]:
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        ranks = any(word.endswith(b"trainer.py") for word in words)
        if child == pid or not ranks:
            found.append(child)
    return found


def children(pid):
    out = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                        out.append(int(entry))
            except OSError:
                pass
    return out


def status(path, key):
    """A figure of a file in /proc, in MiB."""
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(key):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def launch(command, directory):
    """Seconds to the first line of a rank, the launcher's peak RSS in MiB, and what
    all of its processes hold, pages that they share counted once (Pss)."""
    env = dict(os.environ, PYTHON_EXEC=sys.executable)
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = process.stdout.readline()
    seconds = time.perf_counter() - start
    time.sleep(0.3)
    peak = status(f"/proc/{process.pid}/status", "VmHWM:")
    held = sum(status(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in tree(process.pid))
    process.stdout.read()
    if process.wait() != 0 or line != b"first line\n":
        sys.exit(f"{command[0]} failed: exit code {process.returncode}, first line {line!r}")
    return seconds, peak, held


def main():
    gpurun = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "trainer.py"), "w") as file:
            file.write(TRAINER)
        with open(os.path.join(directory, "torchrun.py"), "w") as file:
            file.write(TORCHRUN)
        print("ranks  launcher   first line (s)  peak RSS (MiB)  all its processes, Pss (MiB)")
        for ranks in (1, 2, 8):
            commands = {
                "torchrun": [sys.executable, "torchrun.py", "--standalone", f"--nproc_per_node={ranks}", "trainer.py"],
                "gpurun": [gpurun, f"--nproc-per-node={ranks}", "trainer.py"],
            }
            for command in commands.values():
                launch(command, directory)  # warm caches
            results = {name: [] for name in commands}
            for _ in range(PAIRS):
                for name, command in commands.items():
                    results[name].append(launch(command, directory))
            medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in results.items()}
            for name, (seconds, peak, held) in medians.items():
                print(f"{ranks:5}  {name:9}  {seconds:14.3f}  {peak:14.1f}  {held:28.1f}")
            ratios = [a / b for a, b in zip(medians["torchrun"], medians["gpurun"])]
            print(f"{ranks:5}  ratio      {ratios[0]:13.0f}x  {ratios[1]:13.1f}x  {ratios[2]:27.1f}x")


if __name__ == "__main__":
    main()
