"""The host's time for launches, on a device with a queue that is simulated: its clock moves with each launch."""
import unittest
from unittest import mock

import torch
from harness import part, rungs
from torch import nn

LAUNCH = 1e-5  # seconds of the host for one
EACH = 20  # launches of a block
BLOCKS = 16
COLD = 3  # times as long in the first call
FULL = 200  # launches in the queue, of which a device holds so many


class Device:
    """A device, and the host's clock. It meters nothing but time."""

    resets, device = True, 0

    def __init__(self, kernel):
        self.kernel, self.time, self.ends, self.cold = kernel, 0.0, [0.0], 1

    def launch(self, n=EACH):
        for _ in range(n):
            self.time += LAUNCH * self.cold
            if len(self.ends) > FULL:
                self.time = max(self.time, self.ends[-FULL])
            self.ends.append(max(self.ends[-1], self.time) + self.kernel)

    def wait(self):
        self.time = max(self.time, self.ends[-1])

    def idle(self):
        return self.ends[-1] <= self.time

    def timer(self):
        return max(self.ends[-1], self.time)

    def over(self, timer):
        return True

    def between(self, first, last):
        return last - first

    def read(self):
        self.time += 1e-3  # which is the hook's own time
        return 1, 1

    def known(self):
        return False

    def held(self):
        return self.read()[0]

    def whole(self):
        return {}


class Launched(torch.autograd.Function):
    """Launches a block's kernels, and twice as many in the backward."""

    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        block.launch()
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.block.device.launch(2 * EACH)
        return gradient * 2, None


class Block(nn.Module):
    def __init__(self, device, fails=False):
        super().__init__()
        self.inner, self.weight, self.device, self.fails = nn.Identity(), nn.Parameter(torch.ones(1)), device, fails

    def launch(self):
        if self.fails:
            raise MemoryError
        self.device.launch()

    def forward(self, x):
        return Launched.apply(x * self.weight, self)


class Model(nn.Module):
    def __init__(self, device, fails=None):
        super().__init__()
        self.h, self.device = nn.ModuleList(Block(device, i == fails) for i in range(BLOCKS)), device

    def forward(self, x):
        self.device.launch()
        if self.device.cold > 1:
            self.device.time += 1.0  # kernels are loaded
        for block in self.h:
            x = block(x)
        return {"logits": x}


class Launches(unittest.TestCase):
    def measure(self, kernel, steps=3, fails=None, waits=True):
        """Trains on a device whose kernels take so many seconds, and returns the report."""
        rungs()
        device = Device(kernel)
        part("launches").now = lambda: device.time
        part("meters").of = lambda _: device
        memory, net = part("memory"), Model(device, fails)
        memory.attach = lambda torch: None
        optimizer, x = torch.optim.SGD(net.parameters(), lr=0.0), torch.ones(2, 3)
        for step in range(steps):
            device.cold = COLD if step == 0 else 1
            if step == 0:
                memory.first(net, net, False, (x,), {})
            else:
                memory.hooks.begin((x,), {})
            try:
                output = net(x)
            except MemoryError:
                memory.hooks.failed()
                break
            memory.hooks.end(output)
            output["logits"].sum().backward()
            if waits:
                device.wait()
            memory.before(optimizer)
            optimizer.step()
            memory.after(optimizer)
        return part("session").current.memory.launched()

    forward = LAUNCH * EACH * (BLOCKS + 1)

    def test_fast_device(self):
        found = self.measure(LAUNCH / 2)
        self.assertAlmostEqual(found["forward_seconds"], self.forward)
        self.assertFalse(found["at_most"])
        if hasattr(torch.ones(1, requires_grad=True).exp().grad_fn, "register_prehook"):
            self.assertAlmostEqual(found["backward_seconds"], 2 * LAUNCH * EACH * BLOCKS)

    def test_full_queue(self):
        """Later blocks wait for the device, and the whole backward does."""
        found = self.measure(LAUNCH * 20)
        self.assertAlmostEqual(found["forward_seconds"], self.forward, delta=LAUNCH * EACH)
        self.assertFalse(found["at_most"])
        self.assertNotIn("backward_seconds", found)

    def test_queue_full_from_the_beginning(self):
        found = self.measure(LAUNCH * 20, waits=False)
        self.assertTrue(found["at_most"])
        self.assertGreaterEqual(found["forward_seconds"], self.forward)

    def test_first_call(self):
        """The first call loads the kernels, and memory that runs out in it leaves the blocks before."""
        for fails in (None, 5):
            found = self.measure(LAUNCH / 2, steps=1, fails=fails)
            self.assertAlmostEqual(found["forward_seconds"], COLD * self.forward, delta=COLD * LAUNCH * EACH)
            self.assertTrue(found["at_most"])
            self.assertNotIn("backward_seconds", found)

    def test_lost_device(self):
        """A device that does not answer ends this measurement, and no other."""
        lost = mock.patch.object(Device, "over", side_effect=RuntimeError("CUDA error: unspecified launch failure"))
        with lost:
            self.assertEqual(self.measure(LAUNCH / 2), {})
        self.assertGreater(part("session").current.memory.n, 0)
