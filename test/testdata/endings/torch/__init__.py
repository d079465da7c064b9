# As much of PyTorch as shows gpurun's hook that a process trains: a module that is called,
# an optimizer, a loader. Tests of shells start many processes; PyTorch takes seconds.
import sys
import types

__version__ = "2.6.0"
OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})


def module(name, **members):
    made = sys.modules["torch." + name] = types.ModuleType("torch." + name)
    made.__dict__.update(members)
    return made


class Tensor:
    requires_grad = True
    grad = None
    device = types.SimpleNamespace(type="cpu", index=None)
    dtype = types.SimpleNamespace(is_floating_point=True)

    def numel(self):
        return 1

    def element_size(self):
        return 4

    def is_inference(self):
        return False


class Parameter(Tensor):
    pass


class Module:
    training = True

    def __call__(self):
        return self.forward()

    def parameters(self):
        return [Parameter()]

    def buffers(self):
        return []

    def modules(self):
        return [self]

    def named_modules(self):
        return [("", self)]

    def named_parameters(self):
        return [("weight", each) for each in self.parameters()]


class Optimizer:
    def __init__(self, parameters):
        self.parameters = parameters

    def step(self):
        pass


def is_grad_enabled():
    return True


def save(what, path):
    open(path, "w").write(str(what))


_C = module("_C")
cuda = module("cuda", _queued_calls=[], _lazy_call=lambda *args: None, is_available=lambda: False, is_initialized=lambda: False)
nn = module("nn", Module=Module)
jit = module("jit", ScriptModule=type("ScriptModule", (), {}))
optim = module("optim")
optim.optimizer = module("optim.optimizer", Optimizer=Optimizer)
utils = module("utils")
utils.data = module("utils.data")
utils.data.dataloader = module("utils.data.dataloader", DataLoader=type("DataLoader", (), {"__iter__": lambda self: iter(())}))
serialization = module("serialization", save=save)
OutOfMemoryError.__module__ = "torch"
