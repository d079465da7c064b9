"""Too little memory for the loss: the forward is done again with activation checkpointing before its outputs
are handed over, or the cross entropy is computed in parts."""
import unittest

import torch
import torch.nn.functional as F

import models
from harness import Saved, part, rungs

PLAIN = torch._C._nn.cross_entropy_loss


class Scarce(unittest.TestCase):
    def setUp(self):
        rungs()
        self.process, self.repeats, self.room = part("process"), part("repeats"), part("room")
        self.inplace, self.calls, self.loss = part("inplace"), part("losscalls"), part("losspart")
        self.loss.LEAST, self.loss.PART = 1000, 3000
        part("garbage").collect = lambda: None
        self.guard = None

    def tearDown(self):
        torch._C._nn.cross_entropy_loss = PLAIN
        if self.guard is not None:
            self.guard.remove()

    def train(self, free, names=("checkpointing",), guarded=True, inside=False, loss=None, steps=2):
        """Gives losses, gradients, and the bytes that each forward and loss save, with so much memory
        left in units of the logits in fp32."""
        orders = {"hooks": True, "in_place": {"rungs": list(names), "before_loss": True}}
        self.process.state["orders"] = orders if guarded else {}
        torch.manual_seed(1)
        model, found = models.GPT(dropout=0.1).train(), []
        size = 4 * 20 * models.WORDS * 4
        self.room.free = lambda device: None if free is None else free * size
        words = torch.randint(0, models.WORDS, (4, 20))
        if guarded:
            self.inplace.first(model)
            self.guard = part("session").current.guard
            rootcalls = part("session").current.call
            part("forwards").call(model, lambda module, plain, args, kwargs: rootcalls(plain, module, args, kwargs))
            self.calls.first(model, (words,), {})
        for step in range(steps):
            model.zero_grad()
            with Saved(model) as saved:
                logits, inner = model(words, words if inside else None)
                value = inner if inside else (loss or self.cross_entropy)(logits, words)
            value.backward()
            found += [value.item()] + [p.grad.clone() for p in model.parameters()]
            self.saved = saved.bytes
        return found

    def cross_entropy(self, logits, words):
        return F.cross_entropy(logits.flatten(0, 1), words.flatten())

    def own(self, logits, words):
        return -logits.log_softmax(-1).gather(-1, words[..., None]).mean()

    def same(self, one, other, exact=True):
        for a, b in zip(one, other):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            self.assertTrue(torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-7), "%s is not %s" % (a, b))

    def entries(self):
        return [(e["phase"], e["rung"], e["times"], e["step"]) for e in self.process.told.get("in_place") or ()]

    def test_forward_is_repeated_before_a_loss_of_the_job(self):
        want = self.train(None, guarded=False, loss=self.own)
        whole = self.saved
        found = self.train(2.9, loss=self.own)
        self.same(found, want)
        self.assertEqual(self.entries(), [("loss", "checkpointing", 1, 0)])  # later calls of this size are recomputed from the start
        self.assertLess(self.saved, 0.6 * whole)

    def test_enough_memory(self):
        want = self.train(None, guarded=False, loss=self.own)
        for free in (3.0, None):
            self.same(self.train(free, loss=self.own), want)
            self.assertEqual(self.entries(), [])
            self.tearDown()
            self.setUp()

    def test_small_outputs(self):
        self.loss.LEAST = 1 << 20
        self.train(0.1, loss=self.own)
        self.assertEqual(self.entries(), [])

    def test_loss_of_the_root(self):
        """A backward pass through it can be repeated when it fails."""
        self.train(0.1, inside=True)
        self.assertEqual(self.entries(), [])

    def test_model_that_cannot_be_repeated_goes_on(self):
        want = self.train(None, guarded=False, loss=self.own)
        part("exclusions").barred = lambda root: "no"
        self.same(self.train(0.1, loss=self.own), want)
        self.assertEqual(self.entries(), [])

    def test_cross_entropy_in_parts(self):
        want = self.train(None, guarded=False)
        found = self.train(2.9, names=("checkpointing", "loss-parts"))
        self.same(found, want, exact=False)
        self.assertEqual(self.entries(), [("loss", "loss-parts", 1, 0)])
        entry, = self.process.told["in_place"]
        self.assertEqual((entry["elements"], entry["requested_bytes"]), (4 * 20 * models.WORDS, 0))

    def test_too_little_for_parts_as_well(self):
        want = self.train(None, guarded=False)
        found = self.train(1.2, names=("checkpointing", "loss-parts"))
        self.same(found, want, exact=False)
        self.assertEqual(self.entries(), [("loss", "checkpointing", 1, 0), ("loss", "loss-parts", 1, 0)])

    def test_cross_entropy_that_fails(self):
        """Nothing was foreseen: PyTorch's own runs out, and parts follow. A second failure is the job's."""
        failed = []

        def plain(*args):
            if args[0].shape[0] == 80 and len(failed) < 1:
                failed.append(1)
                torch.empty(1 << 60, dtype=torch.uint8)
            return PLAIN(*args)

        want = self.train(None, guarded=False)
        torch._C._nn.cross_entropy_loss = plain
        plain.gpurun = True  # as another part's
        found = self.train(None, names=("loss-parts",))
        self.same(found, want, exact=False)
        entry, = self.process.told["in_place"]
        self.assertEqual((entry["phase"], entry["rung"], entry["times"], entry["requested_bytes"]), ("loss", "loss-parts", 1, 1 << 60))

    def test_cross_entropy_that_the_job_tries_itself(self):
        def plain(*args):
            torch.empty(1 << 60, dtype=torch.uint8)

        plain.gpurun = True
        torch._C._nn.cross_entropy_loss = plain

        def tries(logits, words):
            try:
                return self.cross_entropy(logits, words)
            except RuntimeError as e:
                if "out of memory" not in str(e) and "can't allocate" not in str(e):
                    raise
                return logits.mean()

        self.train(None, names=("loss-parts",), loss=tries)
        self.assertEqual(self.entries(), [])

    def test_armed(self):
        """A run that goes on begins with what an earlier one needed."""
        orders = {"hooks": True, "in_place": {"rungs": ["loss-parts"], "armed": [{"rung": "loss-parts", "elements": 4880, "longest": 80, "parts": 0}]}}
        self.process.state["orders"] = orders
        model = models.GPT()
        self.calls.first(model, (torch.zeros(4, 20, dtype=torch.long),), {})
        counts, plain = [], self.loss.cross_entropy
        self.loss.cross_entropy = lambda *args: counts.append(1) or plain(*args)
        self.room.free = lambda device: None
        for rows in (79, 80, 81):
            F.cross_entropy(torch.randn(rows, 61).requires_grad_(), torch.zeros(rows, dtype=torch.long)).backward()
        self.assertEqual((len(counts), self.entries()), (2, []))
