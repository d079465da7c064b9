# The models that no remedy inside the process is applied to.
import sys

import torch

from . import listed


def reason(root):
    """Return why nothing is changed inside this model, "" if something may be."""
    return of_root(root) or of_modules(root) or of_parameters(root)


def of_root(root):
    if torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    if compiling():
        return "the model is compiled by torch.compile"
    names = {base.__name__ for base in type(root).__mro__}
    if "DataParallel" in names:
        return "DataParallel makes new replicas of the model in every step"
    if "PipelineEngine" in names:
        return "DeepSpeed's pipeline engine calls the blocks itself"
    return ""


def compiling():
    dynamo = sys.modules.get("torch._dynamo")
    try:
        return bool(dynamo is not None and dynamo.is_compiling())
    except AttributeError:
        return False


def compiles(torch):
    """Return a function that reports whether torch.compile records the call that is under way."""
    before = compiling if hasattr(torch, "compile") else bool  # PyTorch 2.1; before 2.0 there is nothing that compiles
    return getattr(getattr(torch, "compiler", None), "is_compiling", before)


def recording(torch):
    """Return a function that reports whether a call is only recorded, by torch.compile,
    torch.jit.trace or a CUDA graph: what the hook then did would become part of it, and to
    ask for an event's time makes the recording of a CUDA graph fail."""
    compiled, cuda, tracing = compiles(torch), torch.cuda, getattr(torch._C, "_get_tracing_state", None) or (lambda: None)
    used: list = []

    def busy():
        if compiled() or tracing() is not None:
            return True
        if not used:  # only where CUDA is in use: the query itself would initialise it
            if not cuda.is_initialized():
                return False
            used.append(True)
        return cuda.is_current_stream_capturing()

    return busy


@listed.kept
def of_modules(root):
    for module in listed.modules(root):
        why = of_class(type(module)) or of_own(module.__dict__)
        if why:
            path = next((path for path, each in root.named_modules() if each is module), "")
            return "%s %s" % (path if path not in ("", "module") else "the model", why)
    return ""


SCRIPTED, COMPILED = "is a TorchScript module", "is compiled by torch.compile"


@listed.kept
def of_class(kind):
    """Return why nothing is changed inside modules of a class, "" if something may be."""
    if issubclass(kind, torch.jit.ScriptModule):
        return SCRIPTED
    if kind.__name__ == "OptimizedModule" or hasattr(getattr(kind, "forward", None), "_torchdynamo_orig_callable"):
        return COMPILED
    return "is quantised (%s)" % kind.__name__ if is_quantised(kind) else ""


def of_own(attributes):
    """Return why nothing is changed inside a module that has these attributes of its own, "" if something may be."""
    forward = attributes.get("forward")
    if isinstance(forward, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return SCRIPTED
    if attributes.get("_compiled_call_impl") is not None or hasattr(forward, "_torchdynamo_orig_callable"):
        return COMPILED
    return "runs as CUDA graphs" if "graphed" in getattr(forward, "__qualname__", "") else ""


QUANTISED = (
    "bitsandbytes", "torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.qat", "torch.ao.nn.intrinsic.qat",
    "torch.nn.quantized", "torch.nn.intrinsic.quantized", "torch.nn.qat", "torch.ao.quantization", "torch.quantization",
    "torchao", "auto_gptq", "gptqmodel", "awq", "hqq", "aqlm", "eetq", "quanto", "optimum.quanto", "transformer_engine",
)
BELOW = tuple(name + "." for name in QUANTISED)


def is_quantised(kind):
    """Return whether a layer computes in 8 bits or fewer, or learns to.

    bitsandbytes has embeddings and norms that keep 32 bits.
    """
    for base in kind.__mro__:
        room = base.__module__
        if (room + ".").startswith(BELOW):
            return "Linear" in kind.__name__ or not room.startswith(("bitsandbytes", "transformer_engine"))
    return False


@listed.kept
def of_parameters(root):
    for parameter in listed.parameters(root):
        if hasattr(parameter, "ds_id"):
            return "DeepSpeed ZeRO-3 gathers the parameters of each block in its own order"
        if parameter.device.type in ("meta", "xla"):
            return "the model is on the device %s" % parameter.device.type
        kind = type(parameter)
        if kind.__module__.startswith(("torchao", "bitsandbytes")) or kind.__name__ in ("Params4bit", "Int8Params"):
            return "the model is quantised (%s)" % kind.__name__
    return ""


@listed.kept
def is_sharded(root):
    """Return whether FSDP, of either kind, shards the parameters of the model or of parts of it."""
    return any(base.__name__ in ("FullyShardedDataParallel", "FSDPModule") for kind in set(map(type, listed.modules(root))) for base in kind.__mro__)


@listed.kept
def compiled(root):
    """Return whether torch.compile, or TorchScript, runs any of it."""
    return any((of_class(type(m)) or of_own(m.__dict__)) in (SCRIPTED, COMPILED) for m in listed.modules(root))


def is_shared_out(model):
    """Return whether the ranks share the model's parameters out, in any of these ways."""
    return is_sharded(model) or any(hasattr(p, "ds_id") for p in model.parameters())


# By the names of their classes: modules whose forward, or whose parameters, have ranks wait for
# each other.
TOGETHER = {
    "FullyShardedDataParallel": "FSDP gathers the parameters of a block in the forward", "FSDPModule": "FSDP gathers the parameters of a block in the forward",
    "SyncBatchNorm": "SyncBatchNorm waits for other ranks in the forward", "PipelineModule": "the model is a part of a pipeline", "PipelineStage": "the model is a part of a pipeline",
    "ColumnParallelLinear": "the model is tensor-parallel", "RowParallelLinear": "the model is tensor-parallel", "VocabParallelEmbedding": "the model is tensor-parallel",
    "MOELayer": "experts are on other ranks", "MoELayer": "experts are on other ranks", "MoE": "experts are on other ranks",
}


def barred(root):
    """Return why no pass of this model is repeated, "" if one may be."""
    why = reason(root)
    if why:
        return why
    for kind in {type(module): None for module in listed.modules(root)}:
        for base in kind.__mro__:
            if base.__name__ in TOGETHER:
                return TOGETHER[base.__name__]
    if any(type(p).__name__ == "DTensor" for p in listed.parameters(root)):
        return "parameters are shared out among ranks"
    return ""


# Those of transformers collect the outputs of blocks for the call that is in progress.
HARMLESS = ("torch.nn.utils", "torch.nn.parallel", "transformers.utils.output_capturing", "gpurun", "inside.")


def is_harmless(hook):
    """Return whether a hook on a module may run once more."""
    if str(getattr(hook, "__module__", None) or type(hook).__module__).startswith(HARMLESS):
        return True
    code = getattr(hook, "__code__", None)  # one that has an embedding's output require gradients, as recomputation of frozen models needs
    return code is not None and code.co_names == ("requires_grad_",) and not code.co_freevars
