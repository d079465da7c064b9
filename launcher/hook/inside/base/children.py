# The processes that the job starts itself may be ranks of it. gpurun's variables are no
# longer in its environment; they are put into that of a child, where the child is
# Python, as it is started. The child takes them out again (sitecustomize.py).
import os
import sys

from . import rank, wall, wrapping

# The marker of PyInstaller's programs, within so many bytes before their end.
FROZEN, FROZEN_TAIL = b"MEI\014\013\012\013\016", 1 << 16


def given():
    """Return gpurun's variables for a child, the probe's folder as its PYTHONPATH."""
    return dict(rank.start["told"], GPURUN_PROBE_JOB="1", PYTHONPATH=rank.start["folder"])


def instead(name, plain, execve):
    """Return the replacement of one of os's functions that begin a program."""
    if name == "execv":
        return lambda path, args: execv(plain, path, args, execve)
    if name == "execve":
        return lambda path, args, env: plain(path, args, handed(path, args, env))
    return lambda path, args, env, **options: plain(path, args, handed(path, args, env), **options)


def execv(plain, path, args, execve):
    env = extended([path], args, os.environ)
    return plain(path, args) if env is None else wall.part(execve, path, args, env)


def handed(path, args, env):
    more = extended([path], args, env) if not isinstance(path, int) else None
    return env if more is None else more


def arrived(name, module):
    """Called when _posixsubprocess is there, which subprocess and multiprocessing use."""
    if module is None:
        return
    def fork_exec(own, args, executables, close_fds, pass_fds, cwd, env, *rest):
        return own(args, executables, close_fds, pass_fds, cwd, listed(args, executables, env), *rest)

    wrapping.replace(module, "fork_exec", fork_exec)


def listed(args, executables, env):
    """Return fork_exec's environment, a list of KEY=value in bytes or None for its own."""
    try:
        pairs = inherited() if env is None else dict(word.split(b"=", 1) for word in env)
        more = extended(executables, args, pairs)
        if more is None:
            return env
        return [os.fsencode(k) + b"=" + os.fsencode(v) for k, v in more.items()]
    except Exception:
        return env


def inherited():
    """Return the environment that a child would get without any: what libraries and
    os.putenv have set is not in os.environ."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        return os.environb
    words, found = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ"), {}
    for word in words:
        if word is None:
            break
        name, _, value = word.partition(b"=")
        found.setdefault(name, value)
    return found


def extended(executables, args, env):
    """Return an environment with gpurun's variables; None if the child must not have them."""
    try:
        words = [os.fsdecode(word) for word in args]
        if any("resource_tracker" in word for word in words[1:]):
            return None  # multiprocessing's, which runs nothing of the job's
        if blind(words[1:]):
            return None  # it would not take the variables out again
        program = next((os.fsdecode(e) for e in executables if os.path.isfile(e)), None)
        if program is None or not is_python(program):
            return None
        more = {os.fsdecode(k): os.fsdecode(v) for k, v in env.items()}
        paths = more.get("PYTHONPATH")
        more.update(given())
        if paths:
            more["PYTHONPATH"] += os.pathsep + paths
        return more
    except Exception:
        return None


def blind(options):
    """Return whether Python's options (-E, -I, -S) keep it from the probe."""
    for word in options:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return False
        for letter in word[1:]:
            if letter in "EIS":
                return True
            if letter in "mcWXQ":
                break
        if letter in "mc":
            return False
    return False


def is_python(program):
    """Return whether a program is Python, or a script that Python runs."""
    name = os.path.basename(program)
    if name.startswith(("python", "pypy")) or program == sys.executable:
        return not is_frozen(program)
    with open(program, "rb") as f:
        start = f.read(256).split(b"\n")[0]
    return start[:2] == b"#!" and b"python" in start


def is_frozen(program):
    """Return whether PyInstaller or the like has made a program, whose Python reads no
    variable and would not take them out again."""
    if program == sys.executable:
        return bool(getattr(sys, "frozen", False))
    with open(program, "rb") as f:
        f.seek(max(os.path.getsize(program) - FROZEN_TAIL, 0))
        return FROZEN in f.read()
