# How states in host memory visit the device during a step: through a few buffers, by streams of their own on a GPU.
import contextlib

import torch

from ..base import ranout
from . import hosttensors

AGAIN = 32  # steps after which more buffers are tried again
SLOTS = 3  # buffers: what comes, what the optimizer works on, what leaves


class Part:
    """What visits together: entries have the tensor of the job, and the host's and the device's view of its memory."""

    def __init__(self):
        self.entries, self.more = [], 0  # more: bytes of the device that the optimizer needs beside

    def size(self):
        return sum(hosttensors.aligned(hosttensors.bytes_of(e.host)) for e in self.entries)


class Slot:
    """A buffer on the device."""

    def __init__(self, size, device):
        self.buffer = torch.empty(size, dtype=torch.uint8, device=device)
        self.came = self.left = None  # events of streams
        self.guests = []

    def carve(self, entries):
        at, self.guests = 0, []
        for entry in entries:
            size = hosttensors.bytes_of(entry.host)
            self.guests.append((entry, hosttensors.shaped(self.buffer[at:at + size], entry.host)))
            at += hosttensors.aligned(size)


class Way:
    """Copies on the CPU."""

    def __init__(self, device):
        self.device, self.most, self.rest = device, SLOTS, 0

    @contextlib.contextmanager
    def under_way(self, parts, device, make_room):
        """Give what lets the parts come and leave, one after the other."""
        going = Going(self, parts, self.slots(parts, device, make_room))
        self.begin()
        try:
            yield going
        finally:
            going.end()

    def slots(self, parts, device, make_room):
        """Return as many buffers as there is memory for, beside what the optimizer needs; none where nothing visits."""
        size, beside = max(part.size() for part in parts), max(part.more for part in parts)
        self.most, self.rest = (self.most, self.rest - 1) if self.rest else (SLOTS, AGAIN)  # what failed costs time
        for n in range(min(self.most, len(parts)) if size else 0, -1, -1):
            slots = fits(n, size, beside, device)
            if slots is None and n == 0 and make_room(beside):
                slots = fits(n, size, beside, device)
            if slots is not None:
                return slots
            self.most = max(n - 1, 0)
        return []

    def begin(self):
        pass

    def bring(self, slot):
        for entry, guest in slot.guests:
            guest.copy_(entry.host)

    def came(self, slot):
        pass

    def take(self, slot):
        for entry, guest in slot.guests:
            entry.host.copy_(guest)

    def end(self):
        pass


class Cuda(Way):
    """Copies on two streams beside the one that computes."""

    def __init__(self, device):
        super().__init__(device)
        self.into, self.out = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def now(self):
        return torch.cuda.current_stream(self.device)

    def begin(self):
        self.into.wait_stream(self.now())
        self.out.wait_stream(self.now())

    def bring(self, slot):
        if slot.left is not None:
            self.into.wait_event(slot.left)
        with torch.cuda.stream(self.into):
            for entry, guest in slot.guests:
                guest.copy_(entry.host, non_blocking=True)
        slot.came = self.into.record_event()

    def came(self, slot):
        self.now().wait_event(slot.came)

    def take(self, slot):
        self.out.wait_event(self.now().record_event())
        with torch.cuda.stream(self.out):
            for entry, guest in slot.guests:
                entry.host.copy_(guest, non_blocking=True)
        slot.left = self.out.record_event()

    def end(self):
        self.now().wait_stream(self.into)
        self.now().wait_stream(self.out)


def way(device):
    return Cuda(device) if device.type == "cuda" else Way(device)


def fits(n, size, beside, device):
    """Return n buffers, None where they do not fit beside what the optimizer needs."""
    try:
        slots = [Slot(size, device) for _ in range(n)]
        torch.empty(beside, dtype=torch.uint8, device=device)
        return slots
    except Exception as e:
        if not ranout.is_one(e):
            raise
    return None


class Going:
    """The visits of one step. Part i is in slot i modulo their number."""

    def __init__(self, way, parts, slots):
        self.way, self.parts, self.slots, self.brought, self.inside = way, parts, slots, 0, None

    def come(self, i):
        """Have the states of a part be on the device, and begin to bring the next ones."""
        if not self.slots:
            return
        ahead = i + 1 if len(self.slots) == 1 else i + 2
        while self.brought < min(ahead, len(self.parts)):
            slot = self.slots[self.brought % len(self.slots)]
            slot.carve(self.parts[self.brought].entries)
            self.way.bring(slot)
            self.brought += 1
        slot = self.inside = self.slots[i % len(self.slots)]
        self.way.came(slot)
        for entry, guest in slot.guests:
            entry.tensor().data, entry.visiting = guest, True

    def leave(self, i):
        """Take the states of a part back."""
        slot, self.inside = self.inside, None
        if slot is not None:
            self.way.take(slot)
            back(slot)

    def end(self):
        """Comes at the end, and where a part has failed: what it wrote is kept."""
        if self.inside is not None:
            self.leave(0)
        self.way.end()
        self.slots = []


def back(slot):
    for entry, _ in slot.guests:
        entry.tensor().data, entry.visiting = entry.face.data, False
