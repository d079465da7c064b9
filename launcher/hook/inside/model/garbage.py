# What a pass that ran out of memory holds is let go: its frames, and the graphs that PyTorch's engine remembers.
import gc
import sys
import traceback
import types

import torch

from ..base import ranout, wall


def release(failure):
    """Lets go what a failed pass holds, and gives the memory back."""
    clear(failure)
    collect()


def drain():
    """Have the autograd engine forget what a failed backward pass has left in this thread's queue: until the
    next pass in this thread that holds whole branches of the failed pass's graph."""
    with torch.enable_grad():
        end = torch.zeros(1, requires_grad=True)
        torch.autograd.grad(end.clone(), end)


def clear(failure):
    """Lets go what a failed pass holds."""
    wall.alone(drain)()
    error = failure
    for _ in range(8):
        if error is None:
            break
        traceback.clear_frames(error.__traceback__)
        empty(error.__traceback__)
        error = error.__cause__ or error.__context__
    failure.__traceback__ = None


def empty(trace):
    """Let go the inputs of a block that was recomputed when its backward pass failed: a frame keeps its function,
    and that its closure, for as long as there is a traceback."""
    checkpoint = sys.modules.get("torch.utils.checkpoint")
    for frame in ranout.frames_of(trace) if checkpoint is not None else ():
        if frame.f_code.co_filename != checkpoint.__file__:
            continue
        for function in gc.get_referents(frame):
            if isinstance(function, types.FunctionType) and function.__code__ is frame.f_code:
                for cell in function.__closure__ or ():
                    cell.cell_contents = None


def collect():
    """Give memory back that nothing refers to; return whether there was some on the GPU."""
    cuda = torch.cuda if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    before = cuda.memory_allocated() if cuda else 0
    gc.collect()
    if not cuda:
        return False
    cuda.synchronize()
    cuda.empty_cache()
    return cuda.memory_allocated() < before
