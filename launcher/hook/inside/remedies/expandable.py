# PyTorch's allocator with segments that grow, as PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True has from the start:
# memory that was given back serves tensors of any size. The setting can be changed while a process runs; what was
# allocated before stays where it is. gpurun's orders permit it where it might set the variable for another attempt.
import ctypes
import os
import sys

from ..base import process, rank, session, wall

KEY = "expandable_segments"
NEEDED = 102, 103  # of cuDeviceGetAttribute: virtual memory management, and its handles as file descriptors
ENGINES = "vllm", "sglang"  # their memory pools refuse such segments
REGISTERS = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"  # NCCL then registers segments, which must not grow

state: dict = {"tried": False}


@wall.alone
def use():
    """Have the allocator use them from now on. Nothing may hold what a failed pass has left."""
    if state["tried"]:
        return
    state["tried"] = True
    torch, text = sys.modules["torch"], settings()
    if text is None or not permitted() or not can(torch):
        return
    change = setter(torch)
    try:
        change(",".join([text] * bool(text) + [KEY + ":True"]))
    except Exception as e:  # the remedies suffice without it, perhaps
        process.note("failed", {"allocator": "%s: %s" % (type(e).__name__, str(e)[:200])})
        change(text)
        return
    torch.cuda.empty_cache()
    session.current.allocator = "expandable"
    process.say("allocator default→expandable")


def permitted():
    orders = process.orders()
    return bool(orders.get("hooks") and (orders.get("in_place") or {}).get("allocator"))


def settings():
    """Return the settings of the variables that PyTorch has read, None where they decide this one."""
    text = (os.environ.get(rank.ALLOCATOR[1]) or os.environ.get(rank.ALLOCATOR[0]) or "").strip().rstrip(", ")
    return None if KEY in text else text


def setter(torch):
    """Return PyTorch's function that changes the allocator's settings, None where it has none."""
    return getattr(torch._C, "_accelerator_setAllocatorSettings", None) or getattr(torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None)


def can(torch):
    """Return whether this PyTorch and the device in use have such segments."""
    cuda = torch.cuda
    if torch.version.cuda is None or not cuda.is_initialized() or setter(torch) is None or tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1):
        return False
    if cuda.get_allocator_backend() != "native" or REGISTERS in os.environ or any(name in sys.modules for name in ENGINES):
        return False
    try:
        driver, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return False
    return all(driver.cuDeviceGetAttribute(ctypes.byref(found), each, cuda.current_device()) == 0 and found.value == 1 for each in NEEDED)
