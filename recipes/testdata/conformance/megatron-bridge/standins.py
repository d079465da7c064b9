"""Stand-ins for packages that Megatron-Bridge imports and cannot be had without a GPU.

Configurations use nothing of them: any name is a class that does nothing.
"""

import importlib.abc
import importlib.machinery
import sys
import types


class Nothing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(cls, name, Nothing(name, (object,), {}))
        return cls.__dict__[name]

    def __or__(cls, other):
        return cls

    def __getitem__(cls, item):
        return cls

    def __call__(cls, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else type.__call__(cls)


class Module(types.ModuleType):
    __path__ = []
    __version__ = "2.12.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or Nothing(name, (object,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if any(name == p or name.startswith(p + ".") for p in self.packages):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


def install(*packages):
    sys.meta_path.insert(0, Finder(packages))
