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

TRAINER = "import time\nprint('first line', flush=True)\ntime.sleep(1.0)\n"
PAIRS = 5


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


def peak(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def launch(command, directory):
    """Seconds to the first line of a rank, and MiB that the launcher held at most."""
    env = dict(os.environ, PYTHON_EXEC=sys.executable)
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = process.stdout.readline()
    seconds = time.perf_counter() - start
    time.sleep(0.3)
    mib = sum(peak(pid) for pid in tree(process.pid))
    process.stdout.read()
    if process.wait() != 0 or line != b"first line\n":
        sys.exit(f"{command[0]} failed: exit code {process.returncode}, first line {line!r}")
    return seconds, mib


def main():
    gpurun = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "trainer.py"), "w") as file:
            file.write(TRAINER)
        print("ranks  launcher   first line (s)  launcher's peak (MiB)")
        for ranks in (1, 2, 8):
            commands = {
                "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "trainer.py"],
                "gpurun": [gpurun, f"--nproc-per-node={ranks}", "trainer.py"],
            }
            for command in commands.values():
                launch(command, directory)  # warm caches
            results = {name: [] for name in commands}
            for _ in range(PAIRS):
                for name, command in commands.items():
                    results[name].append(launch(command, directory))
            medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in results.items()}
            for name, (seconds, mib) in medians.items():
                print(f"{ranks:5}  {name:9}  {seconds:14.3f}  {mib:21.1f}")
            faster, smaller = (a / b for a, b in zip(medians["torchrun"], medians["gpurun"]))
            print(f"{ranks:5}  ratio      {faster:13.0f}x  {smaller:20.1f}x")


if __name__ == "__main__":
    main()
