# The activations on the host: tensors that the forward saves for the backward pass are
# copied to host memory, and back when the backward pass needs them.
#
# This applies inside the root's forward only. The backward pass first needs the tensors that
# a loss outside it saves, so copying them would save nothing. Other models of the process
# are not touched.
import contextlib
import typing
import weakref

import torch

from ..base import room, wall
from ..model import blocks, exclusions, forwards
from . import hosttensors, remedy

VALUES = ("cpu",)

SHARES = 16  # steps from nothing to all that may be moved
SLOWER = .5  # of a step's time: what the copies add, at the most
SMALLEST = 1 << 20  # bytes of a tensor that is worth the way


def refusal(root, value="cpu"):
    """Return why it cannot be turned on for this model, "" if it can."""
    excluded = exclusions.reason(root)
    if excluded:
        return excluded
    if forwards.is_wrapped("offload", blocks.unwrap(root)):
        return "it is on already"
    device = next((p.device for p in root.parameters()), None)
    if device is None or device.type == "cpu":
        return "the model trains on the CPU"
    if device.type != "cuda":
        return "the model trains on %s" % device.type
    if exclusions.is_sharded(root):
        return "FSDP gathers the parameters of a block in the forward, and they would travel, too"
    return forwards.refusal(blocks.unwrap(root)) or short_of_memory(root, device)


def short_of_memory(root, device):
    """Return the reason where the host has no room for half of what the forward may hold.

    A job that gets this order ran out of device memory, so it holds about all that it may.
    Checkpointed blocks keep only their inputs, in a transformer a 25th; but not all saved
    tensors are in blocks. What does not fit in the end stays on the device.
    """
    expected = room.free(device)
    if forwards.is_recomputed(root):
        expected //= 8
    host = room.host()
    if 2 * host >= expected:
        return ""
    return "the forward may hold %.1f GiB, and each rank can have %.1f GiB of the host's memory" % (
        expected / 2.0**30, host / 2.0**30)


def turn(root, value="cpu", tell=None, when=None, limit=None):
    """Turns it on, in the calls for which when() is true, and returns [old, new]."""
    model, limit = blocks.unwrap(root), limit or Room(room.host(), tell)
    forwards.around("offload", model, lambda: moving(model, limit, when))
    return ["none", value]


def moving(model, room, when=None):
    """Return the context of one forward."""
    if when is not None and not when():
        return contextlib.nullcontext()
    room.moved = 0
    return torch.autograd.graph.saved_tensors_hooks(Travel(torch, storages(model), room).pack, wall.remedy(opened))


def storages(model):
    """Return the storages of the parameters and buffers: views of them are not moved."""
    return {address(t) for t in list(model.parameters()) + list(model.buffers())}


def address(tensor):
    return hosttensors.storage(tensor).data_ptr()


class Room:
    """The free memory of the host: when it is used up, activations stay on the device. So do those that follow after
    the most bytes that one forward may move: the backward pass needs them first."""

    def __init__(self, budget, tell):
        self.left, self.tell = budget, tell
        self.moved, self.most = 0, float("inf")

    def take(self, size, moved):
        """Take room for a parcel of a tensor of so many bytes; return whether there is enough."""
        if self.moved + moved > self.most:
            return False
        if size > self.left:
            if self.tell:
                self.tell("the host's memory is used up: what does not fit stays on the device")
                self.tell = None
            return False
        self.left -= size
        self.moved += moved
        return True


class Parcel:
    """One tensor on the host; its room is given back when the backward pass lets go of it."""

    def __init__(self, torch, tensor, room):
        self.device, self.room, self.back = tensor.device, room, None
        self.size = parcel_size(tensor)
        pinned = tensor.is_cuda
        if hosttensors.is_dense(tensor):
            self.host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=pinned)
        else:
            self.host = torch.empty(tensor.size(), dtype=tensor.dtype, pin_memory=pinned)
        # The same stream makes the tensor, copies it, and copies it back: there is no wait.
        self.host.copy_(tensor, non_blocking=True)

    def open(self):
        tensor = self.back() if self.back is not None else None
        if tensor is None:
            tensor = self.host.to(self.device, non_blocking=True)
            self.back = weakref.ref(tensor)
        return tensor

    def __del__(self):
        self.room.left += self.size


def parcel_size(tensor):
    """Return the bytes that a tensor takes on the host: pinned memory comes in powers of two."""
    size = tensor.numel() * tensor.element_size()
    return 1 << (size - 1).bit_length() if tensor.is_cuda else size


def opened(packed):
    return packed.open() if isinstance(packed, Parcel) else packed


class Travel:
    """What happens to each tensor that one forward saves. A tensor saved twice is copied once."""

    def __init__(self, torch, stay, room):
        self.torch, self.stay, self.room, self.known = torch, stay, room, {}

    def pack(self, tensor):
        try:
            return self.parcel(tensor)
        except Exception:
            return tensor

    def parcel(self, tensor):
        size = tensor.numel() * tensor.element_size()
        if size < SMALLEST or not self.travels(tensor) or size > hosttensors.nbytes(tensor) or address(tensor) in self.stay:
            return tensor
        key = (hosttensors.storage(tensor)._cdata, tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype, tensor._version)
        alive, parcel = self.known.get(key, (None, None))
        if parcel is not None and not alive.expired() and parcel() is not None:
            return parcel()
        if not self.room.take(parcel_size(tensor), size):
            return tensor
        try:
            parcel = Parcel(self.torch, tensor, self.room)
        except BaseException:
            self.room.left += parcel_size(tensor)
            raise
        # Held so, the address is not given to another storage.
        self.known[key] = (weak(hosttensors.storage(tensor)), weakref.ref(parcel))
        return parcel

    def travels(self, tensor):
        return tensor.is_cuda and tensor.layout is self.torch.strided


def weak(whole):
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(whole)


class Offload(remedy.Turned):
    """What the forward saves for the backward pass is kept in host memory."""

    name, value, refuses, turns = "offload-activations", "cpu", staticmethod(refusal), staticmethod(turn)
    room: typing.Any = None
    share, whole = SHARES, 0  # how much of what may be moved is, and the bytes of that

    def turn(self):
        if not self.turned:
            self.room = Room(room.host(), self.guard.given_up)
            self.turns(self.guard.root(), self.value, tell=self.guard.given_up, when=self.on, limit=self.room)
            self.turned = True

    def refusal(self, calls):
        return "" if self.share < SHARES else super().refusal(calls)

    def levels(self, calls):
        if self.turned and self.share < SHARES:
            self.use(SHARES)
        return super().levels(calls)

    # Only as many tensors as are needed.

    def degree(self):
        return self.share

    def degrees(self, above):
        if self.room is not None and self.share == SHARES:
            self.whole = self.room.moved
        return [(self.whole * (SHARES - n) // SHARES, SLOWER * n / SHARES) for n in range(SHARES + 1)] if self.whole and self.is_used() else []

    def use(self, degree):
        self.share = degree
        self.room.most = self.whole * degree // SHARES if degree < SHARES else float("inf")

    def describe(self, degree):
        return {"moved_bytes": self.whole * degree // SHARES}
