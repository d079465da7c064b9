# gpurun puts this file in front of a rank's PYTHONPATH. When an uncaught exception
# ends the rank's main thread, last.py writes what was raised into a file, before
# anything else is done about the exception: what follows may hang. What else the probe
# does begins when the process imports torch. In all other respects Python is to behave
# as if this file were not there.
#
# Any Python reads it at its start, from 2.7 on: keep it short, and import nothing that Python does not import by itself.
# One before 3.8 is left alone: it cannot train with the versions of PyTorch that gpurun knows. It may be a wrapper of
# one that can, so the environment stays as it is.
import os
import sys
import time

NAMES = ("GPURUN_PROBE_FILE", "GPURUN_PROBE_NAMES", "GPURUN_PROBE_ORDERS", "GPURUN_PROBE_JOB", "GPURUN_PROBE_SECRETS")
PACKAGE = "gpurun-probe"  # no statement can import it
LAYERS = ("base", "model", "observe", "remedies", "guard", "setup")


class Part(type(sys)):  # type: ignore[misc]
    """A module of inside, which is run at its first use, and is under no name in sys.modules."""

    def __init__(self, layer, name):
        type(sys).__init__(self, layer + "." + name)
        path = os.path.join(here, "inside", layer.rpartition(".")[2], name + ".py")
        self.__dict__.update(__package__=layer, __file__=path, __builtins__=builtins, gpurun_pending=name)

    def __getattr__(self, attribute):
        inside = self.__dict__
        if "gpurun_pending" not in inside:
            raise AttributeError("%s has no %s" % (self.__name__, attribute))
        exec(compiled(Loader(inside["gpurun_pending"], inside["__file__"])), inside)
        inside.pop("gpurun_pending", None)
        return getattr(self, attribute)


class Layer(type(sys)):  # type: ignore[misc]
    """A folder of inside, which "from . import name" and "from ..layer import name" find the parts in."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Part(self.__name__, name))
        return getattr(self, name)


def importer():
    """Return the built-in names for the parts, in which __import__ knows their package."""
    names = dict(vars(sys.modules["builtins"]))
    plain = names["__import__"]

    def find(name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0:
            return plain(name, globals, locals, fromlist, level)
        return getattr(package, name or globals["__package__"].rpartition(".")[2])

    names["__import__"] = find
    return names


def source(name):
    """Return the text of a part. All are in one file, whose first line has their places."""
    with open(os.path.join(here, "parts"), "rb") as f:
        at, size = eval(f.readline(), {"__builtins__": {}})[name]
        f.seek(at, 1)
        return f.read(size)


Plain = getattr(sys.modules.get("_frozen_importlib_external"), "SourceFileLoader", object)


class Loader(Plain):  # type: ignore[misc,valid-type]
    """The loader of a part, which has no file. Its compiled form has no time: the name of its folder has the digest of
    all parts."""

    def path_stats(self, path):
        return {"mtime": 0, "size": None}

    def get_data(self, path):
        return source(self.name) if path == self.path else Plain.get_data(self, self.kept(path))  # type: ignore[union-attr]

    def _cache_bytecode(self, source_path, cache_path, data):
        self.set_data(self.kept(cache_path), data, _mode=0o600)

    def kept(self, path):
        return os.path.join(here, "__pycache__", os.path.basename(path))


def compiled(loader):
    """Return the compiled form that is kept for all attempts, in __pycache__, wherever the job
    wants that of its own files, if anywhere."""
    kept = sys.dont_write_bytecode, sys.pycache_prefix
    try:
        sys.dont_write_bytecode, sys.pycache_prefix = False, None
        return loader.get_code(loader.name)
    finally:
        sys.dont_write_bytecode, sys.pycache_prefix = kept


def watch(where, names):
    """Chains the hook that reports the exception that ends the main thread. Where returns
    the file of the report.
    """
    import atexit
    from _thread import get_ident

    pid, thread, began = os.getpid(), get_ident(), born
    state = {"told": False, "printed": 0}

    def tell(kind, value, trace):
        # A fork inherits the hook, and a thread that fails does not end the rank.
        # KeyboardInterrupt is somebody's stop.
        if state["told"] or os.getpid() != pid or get_ident() != thread:
            return
        if not issubclass(kind, (KeyboardInterrupt, SystemExit)):
            package.setup.last.reported(where(), names, began, kind, value, trace, previous is plain)
        state["told"] = True

    def excepthook(kind, value, trace):
        try:
            if running(sys._getframe()):
                state["printed"] = id(value)
            else:
                tell(kind, value, trace)
        except BaseException:
            pass
        previous(kind, value, trace)

    def again(signal):
        time.sleep(.01)
        signal.pthread_kill(thread, signal.SIGINT)

    def unraisablehook(unraisable):
        # An interrupt that arrives in a callback of a weak reference or in a
        # finalizer would be ignored. A thread raises it again after that.
        kind = unraisable.exc_type
        if kind is None or not issubclass(kind, KeyboardInterrupt) or os.getpid() != pid or get_ident() != thread:
            ignored(unraisable)
        else:
            __import__("_thread").start_new_thread(again, (__import__("_signal"),))

    def at_exit():
        # The program may have put a hook of its own in place of this one. Python
        # keeps what it handed to the hook.
        try:
            value = getattr(sys, "last_value", None)
            if value is not None and state["printed"] != id(value):
                tell(sys.last_type, value, sys.last_traceback)
            if not state["told"] and os.getpid() == pid:
                package.setup.last.ended(where(), began)
        except BaseException:
            pass

    previous, plain = sys.excepthook, sys.__excepthook__
    # Programs ask whether the hook is the original one, and their own hooks call
    # the original: both are to go on as they would.
    if previous is sys.__excepthook__:
        sys.__excepthook__ = excepthook
    sys.excepthook = excepthook
    ignored = sys.unraisablehook
    if ignored is sys.__unraisablehook__:
        sys.__unraisablehook__ = unraisablehook
    sys.unraisablehook = unraisablehook
    atexit.register(at_exit)


def running(frame):
    """Return whether a program still runs that only has an exception printed."""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def hide():
    """Leaves Python's path and the module's name as they were."""
    sys.path[:] = [p for p in sys.path if p != here]
    sys.path_importer_cache.pop(here, None)
    return sys.modules.pop("sitecustomize", None)


def withdraw():
    """Leaves the environment as it was."""
    first, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == here:
        os.environ.pop("PYTHONPATH")
        if rest:
            os.environ["PYTHONPATH"] = rest
    for name in NAMES:
        os.environ.pop(name, None)


def main():
    told = {name: os.environ.get(name, "") for name in NAMES}
    path = told["GPURUN_PROBE_FILE"]
    if not path:
        withdraw()
        return
    if sys.flags.inspect or sys.flags.interactive:
        return
    if sys.dont_write_bytecode and not os.path.exists(globals().get("__cached__") or here):
        compiled(__spec__.loader)  # for the processes to come
    role, package.base.rank.start["secrets"] = "rank", told["GPURUN_PROBE_SECRETS"]
    try:
        followed = package.base.rank.note(path, "began", named=True)
        role = package.base.rank.role(told)
    finally:
        # What a launcher or a wrapper hands on is for the rank below it.
        if role != "passer":
            withdraw()
    if role == "rank":
        watch(lambda: path, told["GPURUN_PROBE_NAMES"])
    package.setup.imports.follow(role, told, here, watch)
    if followed:
        package.base.ends.arm(path)


here, born, known = os.path.dirname(__file__), time.time(), sys.version_info >= (3, 8) and "__pypy__" not in sys.builtin_module_names
try:
    kept = hide()  # Python 2 empties a module that nothing refers to
    if known:
        package, builtins = type(sys)(PACKAGE), importer()
        for layer in LAYERS:
            setattr(package, layer, Layer(PACKAGE + "." + layer))
except Exception:
    known = False
try:
    # The one that would have been found; without one, the error that says so.
    import sitecustomize  # noqa: F401
finally:
    try:
        if known:
            main()
    except Exception:
        pass
