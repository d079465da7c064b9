# Tensors of a device whose data are in host memory. On a GPU that memory is page-locked, and both the host and the
# device address it: what computes with such a tensor reads and writes over the link, and to the job it is a tensor of
# the GPU like any other. On the CPU, where the same code is tested, it is memory that RLIMIT_DATA does not count.
import mmap
import os
import sys

import torch

from ..base import room

SLAB = 64 << 20  # bytes that small tensors share
LARGE = SLAB // 8  # bytes of a tensor that has a slab for itself
ALIGNED = 256  # bytes


PORTABLE, MAPPED = 1, 2  # flags of cudaHostRegister


class NoRoom(RuntimeError):
    """The host cannot take more."""


class Slab:
    """A piece of host memory. It lives as long as a tensor in it."""

    def __init__(self, size, device):
        if size > room.host():
            raise NoRoom("each rank can have %.1f GiB more of the host's memory" % (room.host() / 2.0**30))
        try:
            self.map = mmap.mmap(-1, size)  # shared: it stays in place when the process forks
        except (OSError, ValueError) as e:
            raise NoRoom("the host gives no memory: %s" % e)
        self.size, self.used, self.device, self.address, self.pid = size, 0, device, 0, os.getpid()
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self.map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass
        if device.type == "cuda":
            self.lock()

    def lock(self):
        """Lock the pages, near the processor that runs this, and let the GPU address them."""
        address = torch.frombuffer(self.map, dtype=torch.uint8, count=1).data_ptr()
        with torch.cuda.device(self.device):
            error = torch.cuda.cudart().cudaHostRegister(address, self.size, PORTABLE | MAPPED)
        if int(error) != 0:
            forget(self.device)
            raise NoRoom("page-locked memory is refused: %s" % error)
        self.address = address

    def __del__(self):
        if getattr(self, "address", 0) and self.pid == os.getpid() and not sys.is_finalizing():
            try:
                torch.cuda.synchronize(self.device)  # what was launched may still use it
                torch.cuda.cudart().cudaHostUnregister(self.address)
            except Exception:
                pass

    def pair(self, tensor):
        """Return two tensors with the layout of a tensor, and the same memory: one of the host, one of the device."""
        size = bytes_of(tensor)
        at, self.used = self.used, self.used + aligned(size)
        raw = torch.frombuffer(self.map, dtype=torch.uint8, count=size, offset=at)
        host = shaped(raw, tensor)
        if not self.address:
            return host, host.detach()
        return host, shaped(torch.as_tensor(Mapped(self, self.address + at, size), device=self.device), tensor)


class Mapped:
    """Describes a part of a slab to PyTorch as memory of the GPU, and keeps the slab."""

    def __init__(self, slab, address, size):
        self.slab = slab
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2}


class Arena:
    """The host memory of the tensors of one device."""

    def __init__(self, device):
        self.device, self.slab = device, None
        if device.type == "cuda":
            self.check()

    def pair(self, tensor):
        size = aligned(bytes_of(tensor))
        if size >= LARGE:
            return Slab(pages(size), self.device).pair(tensor)
        if self.slab is None or self.slab.size - self.slab.used < size:
            self.slab = Slab(SLAB, self.device)
        return self.slab.pair(tensor)

    def check(self):
        """Raise NoRoom where the GPU does not see the host's memory as its own."""
        if torch.version.hip:
            raise NoRoom("only GPUs of NVIDIA are known to address page-locked memory as the host does")
        first, then = torch.arange(64, dtype=torch.int32), torch.arange(1, 65, dtype=torch.int32)
        try:
            host, face = Slab(pages(1), self.device).pair(first)
            host.copy_(first)
            seen = face.cpu()
            face.add_(1)
            torch.cuda.synchronize(self.device)
        except NoRoom:
            raise
        except Exception as e:  # an old PyTorch, or one without NumPy
            raise NoRoom("PyTorch cannot have the GPU address page-locked memory: %s" % e)
        if face.device != self.device or not torch.equal(seen, first) or not torch.equal(host, then):
            raise NoRoom("the GPU does not address page-locked memory as the host does")


def forget(device):
    """Have CUDA forget an error: whatever is launched next would raise it."""
    for _ in range(2):
        try:
            torch.zeros(1, device=device)
        except Exception:
            pass


def shaped(raw, like):
    """Return bytes as a tensor of the dtype and the layout of another one."""
    return raw.view(like.dtype).as_strided(like.size(), like.stride())


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def aligned(size):
    return -(-size // ALIGNED) * ALIGNED


def pages(size):
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def nbytes(tensor):
    whole = storage(tensor)
    return whole.nbytes() if hasattr(whole, "nbytes") else len(whole) * tensor.element_size()


def is_dense(tensor):
    """Return whether a tensor's elements fill their memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
