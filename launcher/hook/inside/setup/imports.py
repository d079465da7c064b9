# What the probe does once a module is imported, and nothing before: a finder in front
# of sys.meta_path that looks names up in a dictionary.
import _thread
import os
import sys
import time

from ..base import children, process, rank, wall, wrapping
from ..observe import allocator, arguments, deepspeed, huggingface, lightning
from . import pytorch

# By module, the part whose arrived is called once it is imported.
ARRIVALS = {
    "torch": pytorch,
    "torch._dynamo": pytorch,
    "transformers.training_args": huggingface,
    "transformers.trainer": huggingface,
    "accelerate.accelerator": huggingface,
    "lightning.pytorch.trainer.trainer": lightning,
    "pytorch_lightning.trainer.trainer": lightning,
    "deepspeed": deepspeed,
    "_posixsubprocess": children,
    "argparse": arguments,
    "transformers.hf_argparser": arguments,
    "jsonargparse._core": arguments,
    "click.core": arguments,
    "typer._click.core": arguments,
    "absl.flags._flagvalues": arguments,
    "fire.core": arguments,
    "tyro._cli": arguments,
    "pyrallis.argparsing": arguments,
    "hydra.core.utils": arguments,
    "omegaconf.omegaconf": arguments,
}

# What starts the children of subprocess and multiprocessing.
CHILDREN = "_posixsubprocess"

plain: dict = {}  # functions of os that begin a program


def follow(role, told, folder, watch):
    """Begins to follow a process: see rank.py for its role.

    Told has gpurun's variables, folder is the probe's, and watch sets the hook that
    reports the last exception.
    """
    if "torch" not in sys.modules and any(name in os.environ for name in rank.ALLOCATOR):
        allocator.withhold(told)
    wanted = dict(ARRIVALS)
    rank.start.update(role=role, told=told, folder=folder, watch=watch, done=done, failed=lambda *args: process.failed(*args))
    if role == "passer":
        del wanted[CHILDREN]  # they inherit the environment
    else:
        import posix

        for name in ("execv", "execve", "posix_spawn", "posix_spawnp"):
            plain[name] = getattr(os, name)
            setattr(os, name, late(name))
            setattr(posix, name, getattr(os, name))  # where pickle looks it up
        if plain["execve"] in os.supports_fd:
            os.supports_fd.add(os.execve)
    for name in list(wanted):
        if name in sys.modules:  # a sitecustomize of the user's has imported it
            wanted.pop(name).arrived(name, sys.modules[name])
    finder.wanted = wanted
    sys.meta_path.insert(0, finder)


def late(name):
    """Return the replacement of a function of os: children.py is read once it is called."""
    def begins(own, *args, **kwargs):
        return children.instead(name, own, plain["execve"])(*args, **kwargs)

    def call(*args, **kwargs):
        return wall.call(plain[name], begins, wall.LOOKS, *args, **kwargs)

    call.__dict__["__wrapped__"] = plain[name]  # for inspect.signature
    return wrapping.like(plain[name], call)


class Finder:
    wanted, gone = {}, False

    def find_spec(self, name, path=None, target=None):
        if self.gone or name in self.wanted:
            return wall.call(nothing, self.find, wall.LOOKS, name, path, target)
        return None

    def find(self, own, name, path, target):
        if self.gone:
            return found(name, path, target)  # the caller may pass over the next finder
        try:
            spec = found(name, path, target)
        except ImportError as e:
            raise wall.raising(e)
        except Exception:
            return None
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, name)
        return spec

    def invalidate_caches(self):
        pass


def nothing(name, path, target):
    """Leave a module to the finders after the hook's."""


finder = Finder()


def found(name, path, target):
    """Search the finders after the hook's."""
    others = list(sys.meta_path)
    for other in others[others.index(finder) + 1:] if finder in others else others:
        ask = getattr(other, "find_spec", None)
        spec = ask(name, path, target) if ask is not None else None
        if spec is not None:
            return spec
    return None


class Loader:
    """Replaces a module's loader until the module is run: the module itself, and
    code that looks while it runs, see the original one."""

    def __init__(self, loader, name):
        self._gpurun = loader, name
        self.exec_module = wall.wrapped(loader.exec_module, self.executes)
        if hasattr(loader, "create_module"):
            self.create_module = loader.create_module

    def __getattr__(self, attribute):
        return getattr(self.__dict__["_gpurun"][0], attribute)

    def executes(self, own, module):
        loader, name = self._gpurun
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.loader is self:
            spec.loader = loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = loader
        part = finder.wanted.get(name)
        if part is None:
            own(module)
            return
        if name == "torch":
            wall.alone(allocator.give)()
        # Hooks of a part that is at work already step aside for what comes.
        aside = tell(part, "arriving", name, None)
        try:
            own(module)
        except BaseException:
            if aside:
                tell(part, "arrived", name, None)
            raise  # it may be imported again
        finder.wanted.pop(name, None)
        tell(part, "arrived", name, module)


def tell(part, what, name, module):
    """Calls a part's function of that name, where it has one."""
    try:
        if what == "arriving" and name != "torch._dynamo":
            return None
        return getattr(part, what)(name, module)
    except Exception as e:
        wall.failed(e)


def done():
    """Removes the finder: later imports come too late to matter."""
    if CHILDREN in finder.wanted:
        try:
            __import__(CHILDREN)  # a part of Python itself, which torch needs, too
        except ImportError:
            pass
    finder.wanted = {}
    # The same list, since others may have kept it. A thread that goes through it now would
    # skip a finder: wait for it. find_spec helps a thread that comes later.
    finder.gone = True
    for _ in range(50):
        if not looking():
            break
        time.sleep(0.001)
    else:
        finder.gone = False
        return
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


def looking():
    """Return whether another thread goes through the finders."""
    frames = sys._current_frames()
    del frames[_thread.get_ident()]  # no name may refer to it: it would hold itself, and with it what its callers hold
    for frame in frames.values():
        while frame is not None:
            if frame.f_code.co_name == "_find_spec" and "importlib" in frame.f_code.co_filename:
                return True
            frame = frame.f_back
    return False
