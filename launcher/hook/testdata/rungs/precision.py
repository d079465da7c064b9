"""bf16 round the root, its outputs in fp32; and what is saved, on its way to the host."""
import collections
import dataclasses
import os
import tempfile
import unittest

import torch

import models
from harness import AtFirstCall, Training, compare, loss_of, part, rungs


class Precision(unittest.TestCase):
    def test_first_and_later_calls(self):
        model, inside = models.GPT(), []
        model.transformer.h[0].mlp[0].register_forward_hook(lambda m, a, o: inside.append(o.dtype))
        first = AtFirstCall(model, {"precision": "bf16"})
        for step in range(3):
            logits, _ = model(models.words(step))
            self.assertEqual(logits.dtype, torch.float32)
            loss_of(logits, step).backward()
        self.assertEqual(inside, [torch.bfloat16] * 3)
        self.assertEqual(first.result["applied"], {"precision": ["fp32", "bf16"]})
        self.assertEqual({p.grad.dtype for p in model.parameters()}, {torch.float32})

    def test_with_checkpointing(self):
        """Checkpointing changes nothing of a training in bf16 either."""
        one = Training(models.GPT, models.words, turn={"precision": "bf16"})
        both = Training(models.GPT, models.words, turn={"precision": "bf16", "activation_checkpointing": "full"})
        compare(self, both, one)
        self.assertLess(both.saved[0], one.saved[0])

    def test_containers(self):
        pair = collections.namedtuple("pair", "a b")

        @dataclasses.dataclass
        class Record:
            a: torch.Tensor
            b: str = "x"

        convert = part("autocast").to_fp32
        half, whole, number = torch.ones(2, dtype=torch.bfloat16), torch.ones(2), torch.ones(2, dtype=torch.long)
        for value in ((half, number), [half], {"a": half}, collections.OrderedDict(a=half), pair(half, 1), Record(half), ((half,), {"a": [half]})):
            new = convert(value)
            self.assertIs(type(new), type(value))
            self.assertNotIn("bfloat16", repr(new))
            self.assertIn("bfloat16", repr(value), "the job's own object is left alone")
        for value in (whole, number, None, "x", (whole, 1), {"a": whole}):
            self.assertIs(convert(value), value)


class OnTheHost(unittest.TestCase):
    """The way to the host and back, on a CPU that is taken for a device."""

    def travelling(self, turn=(), budget=1 << 40, smallest=1 << 10):
        room = rungs()
        offload = part("offload")
        offload.refusal, offload.SMALLEST = lambda root, value: "", smallest
        part("room").host = lambda: budget
        offload.Travel.travels = lambda self, tensor: True
        parcels = []
        offload.Parcel.__init__ = counted(offload.Parcel.__init__, parcels)
        told = []
        import harness

        own, harness.rungs = harness.rungs, lambda: room
        try:
            turned = Training(lambda: models.GPT(dropout=0.1), models.words, turn=dict(turn, offload_activations="cpu"), told=told)
        finally:
            harness.rungs = own
        return turned, parcels, told

    def test_equal(self):
        turned, parcels, told = self.travelling()
        untouched = Training(lambda: models.GPT(dropout=0.1), models.words)
        compare(self, turned, untouched)
        self.assertEqual(turned.result["applied"], {"offload_activations": ["none", "cpu"]})
        own = {p.data_ptr() for p in turned.model.parameters()}
        self.assertFalse([pointer for pointer, _ in parcels if pointer in own], "parameters stay")
        held = sum(size for _, size in parcels) / 3
        self.assertGreater(held, 0.8 * untouched.saved[0])
        self.assertEqual(told, [])

    def test_saved_twice(self):
        """What four operations save travels once, and comes back once."""
        rungs()
        offload = part("offload")
        offload.SMALLEST, offload.Travel.travels = 0, lambda self, tensor: True
        room = offload.Room(10_000, None)
        way = offload.Travel(torch, set(), room)
        x = torch.randn(8, 16, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(way.pack, offload.opened):
            y = x.exp()
            z = (y * y).sum() + y.sin().sum()
        self.assertEqual(room.left, 10_000 - 8 * 16 * 4)
        z.backward()
        self.assertTrue(torch.allclose(x.grad, (2 * x.exp() + x.exp().cos()) * x.exp()))
        del z, y
        self.assertEqual(room.left, 10_000, "the room is given back")

    def test_with_checkpointing(self):
        alone = self.travelling()[1]
        turned, parcels, _ = self.travelling({"activation_checkpointing": "full"})
        compare(self, turned, Training(lambda: models.GPT(dropout=0.1), models.words))
        self.assertLess(len(parcels), len(alone) / 2)

    def test_no_room(self):
        turned, parcels, told = self.travelling(budget=100_000)
        compare(self, turned, Training(lambda: models.GPT(dropout=0.1), models.words))
        self.assertGreater(len(parcels), 0)
        self.assertEqual(told, [("offload_activations", "the host's memory is used up: what does not fit stays on the device")])

    def test_threshold(self):
        self.assertEqual(self.travelling(smallest=1 << 20)[1], [])

    def test_limits(self):
        rungs()
        room = part("room")
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(root + "/a/b")
            def write(name, text):
                return open(os.path.join(root, name), "w").write(text)
            write("a/memory.max", "1000\n")
            write("a/memory.current", "700\n")
            write("a/memory.stat", "anon 5\ninactive_file 100\n")
            write("a/b/memory.max", "max\n")
            write("a/b/memory.current", "700\n")
            write("own", "0::/a/b\n")
            self.assertEqual(room.cgroups(root, root + "/own"), [400])
            os.makedirs(root + "/memory/c")
            write("memory/c/memory.limit_in_bytes", "5000\n")
            write("memory/c/memory.usage_in_bytes", "4000\n")
            write("old", "3:cpu,memory:/c\n1:name=systemd:/\n")
            self.assertEqual(room.cgroups(root, root + "/old"), [1000])
        self.assertGreater(room.host(), 0)
        os.environ["LOCAL_WORLD_SIZE"] = "4"
        try:
            self.assertLess(room.host() * 3, max(room.available()))
        finally:
            del os.environ["LOCAL_WORLD_SIZE"]

    def test_strides(self):
        rungs()
        offload = part("offload")
        x = torch.randn(2, 3, 4, 5)
        for tensor in (x, x.transpose(1, 2), x.contiguous(memory_format=torch.channels_last), x[:, 1:], x[..., ::2], x[:, :1]):
            parcel = offload.Parcel(torch, tensor, offload.Room(0, None))
            self.assertTrue(torch.equal(parcel.open(), tensor))
            if part("hosttensors").is_dense(tensor):
                self.assertEqual(parcel.open().stride(), tensor.stride())


def counted(init, parcels):
    def __init__(self, torch, tensor, room):
        init(self, torch, tensor, room)
        parcels.append((tensor.data_ptr(), self.size))

    return __init__
