# Which of the Python processes below gpurun's child is the rank: the first one that
# runs the job's script or module. A wrapper before it may be Python itself (conda run,
# poetry run, torchrun), and is left alone.
import os
import sys

# This process: its role, gpurun's variables (told), the hook's folder, and functions: watch, which sets the hook that
# reports the last exception, done, which ends the listening to imports, and failed, which reports an error of the hook.
start = {}

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the variables of PyTorch's allocator


def role(told):
    """Return the role of this process in the job.

    rank    it runs what the job names, and no living process did before it
    own     the job has started it: by itself, or as one of several that run the same
    passer  it runs something else; it counts as one of the job's processes if it trains

    Told has the variables that gpurun has set.
    """
    path = told["GPURUN_PROBE_FILE"]
    if told["GPURUN_PROBE_JOB"]:
        # A process that has replaced itself by another program is what it was.
        return "rank" if holder(path) == os.getpid() else "own"
    orders = read(told["GPURUN_PROBE_ORDERS"])
    script, module = orders.get("script"), orders.get("module")
    if not script and not module:
        return "rank" if leads(path) and claim(path) else "passer"
    if not runs(words(), script, module):
        return "passer"
    return "rank" if claim(path) else "own"


def name():
    """Return the scripts and modules in this process's command: the name of a program (runsOf in process.go)."""
    own = words()
    found = [os.path.basename(word) for last, word in zip(own, own[1:]) if word.endswith(".py") or last == "-m"]
    return " ".join(found).replace("\n", " ")[:200]


def note(path, what, named=False):
    """Notes how far this process has come, where gpurun follows the processes below a shell:
    there is a file for it then. It appears there as it begins, imports torch, and makes an
    optimizer. Named: with its name. Returns whether there is one."""
    try:
        fd = os.open(os.path.join(os.path.dirname(path), "programs"), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        notes = ["runs " + name(), what] if named else [what]
        os.write(fd, os.fsencode("".join("%d %s\n" % (os.getpid(), each) for each in notes)))
    except OSError:
        pass
    finally:
        os.close(fd)
    return True


def variable(name):
    """Return a variable that gpurun has set, "" if it is not set. That of the allocator may be withheld: see allocator.py."""
    kept, value = start.get("withheld", (None, None))
    return value if name == kept else os.environ.get(name, "")


def read(path):
    """Return the orders, an empty dictionary without any.

    Python's json would take longer than all else here, and what Go writes reads as
    Python: strings, numbers and three words.
    """
    try:
        with open(path) as f:
            return eval(f.read(), {"__builtins__": {}, "true": True, "false": False, "null": None})
    except Exception:
        return {}


def words():
    """Return the command line, the interpreter and its options included."""
    found = getattr(sys, "orig_argv", None)  # from Python 3.10 on
    return command("self") if found is None else found


def command(pid):
    with open("/proc/%s/cmdline" % pid, "rb") as f:
        return [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]


def follows(pid, path):
    """Return whether a process was given the variable with this file."""
    with open("/proc/%d/environ" % pid, "rb") as f:
        return os.fsencode("GPURUN_PROBE_FILE=" + path) in f.read().split(b"\0")


def runs(words, script, module):
    """Return whether a command line runs that script, or that module."""
    kind, name = runnable(words)
    if kind == "module":
        return bool(module) and name == module
    return kind == "script" and bool(script) and same(name, script)


def same(a, b):
    if os.path.abspath(a) == os.path.abspath(b):
        return True
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return False


def runnable(words):
    """Return what an interpreter runs: its kind (script, module or other) and its name."""
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            return "script", word
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                rest[:1] = []
            continue
        for i, letter in enumerate(word[1:], 2):
            if letter == "m":
                return "module", word[i:] or (rest[0] if rest else "")
            if letter == "c":
                return "other", ""
            if letter in "WXQ":
                if not word[i:]:
                    rest[:1] = []
                break
    return "other", ""


# Python programs that end as the command does that they start.
PASSING = (
    "torchrun", "accelerate", "accelerate-launch", "deepspeed", "composer", "tune", "axolotl", "llamafactory-cli", "swift", "trl",
    "conda", "mamba", "poetry", "pdm", "pipenv", "hatch", "torch.distributed.run", "torch.distributed.launch",
    "accelerate.commands.launch", "deepspeed.launcher.runner", "deepspeed.launcher.launch",
)


def above(path):
    """Return the programs between gpurun and this process, the nearest first: their numbers
    and command lines."""
    found, pid = [], os.getppid()
    try:
        while len(found) < 64 and follows(pid, path):
            found.append((pid, command(pid)))
            with open("/proc/%d/stat" % pid, "rb") as f:
                pid = int(f.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError):
        pass  # it ended, or is another user's
    return found


def masked(path):
    """Return whether the exit code of a program above this process may hide its own: of a
    shell, or of what passes an exit code on; and whether a Python program of the job's own
    below such a shell decides instead what its children's ends mean. A shell may also have
    become this process (exec), after others below it had ended: then all their ends are
    compared."""
    programs = above(path)
    if not programs:
        return bool(earlier(os.path.dirname(path))), False
    hides = all(passes(words) for _, words in programs)
    return hides, not hides and passes(programs[-1][1])


def earlier(folder):
    """Return the files in which other processes of this rank wrote how they ended."""
    import json

    found = []
    for name in os.listdir(folder):
        if name.startswith("probe") and name.endswith(".json"):
            with open(os.path.join(folder, name)) as f:
                if json.load(f).get("pid") != os.getpid():
                    found.append(name)
    return found


def passes(words):
    """Return whether a program ends as what it starts does, or is not Python."""
    if not words or not os.path.basename(words[0]).startswith(("python", "pypy")):
        return True
    kind, name = runnable(words)
    if kind == "module":
        return name in PASSING
    return os.path.basename(name) in PASSING or name.endswith(("/torch/distributed/run.py", "/torch/distributed/launch.py"))


def leads(path):
    """Return whether gpurun itself has started this process, or a shell that became it."""
    if os.getsid(0) != os.getpid():
        return False
    try:
        return not follows(os.getppid(), path)
    except OSError:
        return True  # it is another user's, and so was not told


def mode(path):
    """Return the mode of a new file: the group of a volume that shares the folder can read it."""
    return 0o640 if os.stat(os.path.dirname(path)).st_mode & 0o2070 == 0o2070 else 0o600


def claim(path):
    """Makes this process the rank, unless a living one is. Claims follow each other:
    the next one bears the number of the process that held the one before."""
    folder, name = os.path.dirname(path), "claim"
    for _ in range(1000):
        try:
            fd = os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError:
            pid = held(os.path.join(folder, name))
            if pid is None or pid == os.getpid():
                return pid is not None
            if os.path.exists("/proc/%d" % pid):
                return False
            name = "claim-%d" % pid
            continue
        try:
            os.write(fd, b"%d\n" % os.getpid())
        finally:
            os.close(fd)
        return True
    return False


def holder(path):
    """Return the process that is the rank, None for none."""
    folder, name, pid = os.path.dirname(path), "claim", None
    for _ in range(1000):
        found = held(os.path.join(folder, name))
        if found is None:
            break
        pid, name = found, "claim-%d" % found
    return pid


def held(path):
    """Return the process that a claim names; None where it is not known (yet)."""
    try:
        with open(path) as f:
            return int(f.read())
    except (OSError, ValueError):
        return None
