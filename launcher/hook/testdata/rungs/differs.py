"""Blocks whose second run is not their first: the backward pass fails before a step is taken."""
import itertools
import random
import types
import unittest
import weakref

import torch
from torch import nn

import models
from harness import AtFirstCall, Training, compare, loss_of, part

FULL = {"activation_checkpointing": "full"}

SHARED = 1.0  # set by the job between forward and backward
FACTORS = itertools.count(1)  # nothing can read its state
SEEN = []


class OwnGenerator(models.Block):
    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.draw = torch.Generator().manual_seed(5)

    def forward(self, x):
        return super().forward(x) * (torch.rand(x.shape, generator=self.draw) > 0.1)


class LaterDrawing(models.Block):
    """Draws random numbers from its fourth step on, when nothing is compared any more."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + random.random() if self.calls > 3 else 1)


class Registers(models.Block):
    """Registers a hook when it is first called."""

    calls = 0

    def forward(self, x):
        if not self.calls:
            self.calls = 1
            self.register_forward_hook(lambda module, args, output: output * 1.1)
        return super().forward(x)


class ByParent(models.Block):
    def forward(self, x):
        return super().forward(x) * self.parent().temp


class Cooling(models.GPT):
    """Changes an attribute, which its blocks read, after they have."""

    def __init__(self):
        super().__init__(block=ByParent)
        self.temp = 1.0
        for block in self.transformer.h:
            block.parent = weakref.ref(self)

    def forward(self, idx):
        output = super().forward(idx)
        self.temp *= 0.9
        return output


class ByGlobal(models.Block):
    def forward(self, x):
        return super().forward(x) * SHARED


class ByIterator(models.Block):
    def forward(self, x):
        return super().forward(x) * next(FACTORS)


class Appends(models.Block):
    """Appends to lists that are not its own."""

    def forward(self, x):
        x = super().forward(x)
        SEEN.append(float(x.detach().sum()))
        self.parent().seen.append(len(SEEN))
        self.shared.seen.append(x.detach().mean())
        self.shared.calls += 1
        return x


class Collecting(models.GPT):
    def __init__(self):
        super().__init__(block=Appends)
        self.seen, self.shared = [], types.SimpleNamespace(seen=[], calls=0)
        for block in self.transformer.h:
            block.parent, block.shared = weakref.ref(self), self.shared


class Switch(models.GPT):
    """A model with a switch of its own, as transformers has."""

    supports_gradient_checkpointing = True

    def __init__(self, block=models.Block):
        super().__init__(block=block)
        self.gradient_checkpointing, self.function = False, None

    def _set_gradient_checkpointing(self, enable=True, gradient_checkpointing_func=None):
        self.gradient_checkpointing, self.function = enable, gradient_checkpointing_func

    def forward(self, idx):
        x = self.transformer.wte(idx)
        for block in self.transformer.h:
            x = self.function(block.__call__, x) if self.gradient_checkpointing and self.training else block(x)
        return self.head(x)


class Differs(unittest.TestCase):
    def fails(self, make, between=lambda: None, rounds=1, why="its output is another, by"):
        told = []
        torch.manual_seed(1)
        model = make()
        AtFirstCall(model, FULL, lambda knob, reason: told.append((knob, reason)))
        for step in range(rounds):
            loss = loss_of(model(models.words(step)), step)
            between()
            if step < rounds - 1:
                loss.backward()
        with self.assertRaisesRegex(RuntimeError, "gpurun checkpoints no block of this job: .* in the backward pass: " + why):
            loss.backward()
        self.assertEqual([knob for knob, _ in told], ["activation_checkpointing"])
        self.assertIn("computes something else when it is run again", told[0][1])

    def test_hook_that_a_forward_registers(self):
        self.fails(lambda: models.GPT(block=Registers), why="the hooks of modules changed for the first time")

    def test_random_numbers_of_a_later_step(self):
        self.fails(lambda: models.GPT(block=LaterDrawing), rounds=4, why="Python's random numbers changed for the first time")

    def test_iterator(self):
        """It cannot be put back: blocks that use one are not recomputed."""
        results = []
        for turn in ({}, FULL):
            self.set(FACTORS=itertools.count(1))
            results.append(Training(lambda: models.GPT(block=ByIterator), models.words, turn=turn))
        compare(self, *results)

    def test_attribute_of_the_parent(self):
        compare(self, Training(Cooling, models.words, turn=FULL), Training(Cooling, models.words))

    def test_global_changed_before_the_backward(self):
        results = []
        for turn in ({}, FULL):
            torch.manual_seed(0)
            model = models.GPT(block=ByGlobal)
            AtFirstCall(model, turn)
            for step in range(4):
                self.set(SHARED=1.0 + step)
                loss = loss_of(model(models.words(step)), step)
                self.set(SHARED=0.5)
                loss.backward()
                self.assertEqual(SHARED, 0.5)
            results.append([p.grad for p in model.parameters()])
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(*results)))

    def set(self, **values):
        globals().update(values)

    def test_switch_of_the_model(self):
        self.fails(lambda: Switch(OwnGenerator))
        untouched, turned = Training(Switch, models.words), Training(Switch, models.words, turn=FULL)
        compare(self, turned, untouched)
        self.assertEqual(turned.result["applied"], {"activation_checkpointing": ["none", "full"]})
        self.assertLess(turned.saved[0], 0.75 * untouched.saved[0])

    def test_lists_that_grow(self):
        lists = []
        for turn in (None, FULL):
            SEEN.clear()
            trained = Training(Collecting, models.words, turn=turn)
            lists.append((list(SEEN), trained.model.seen, [float(m) for m in trained.model.shared.seen], trained.model.shared.calls, trained))
        self.assertEqual(lists[0][:-1], lists[1][:-1])
        self.assertEqual(len(lists[0][0]), 12)
        compare(self, lists[1][-1], lists[0][-1])

    def test_several_calls_before_a_backward(self):
        results = []
        for turn in ({}, FULL):
            torch.manual_seed(0)
            model = models.GPT(dropout=0.2)
            AtFirstCall(model, turn)
            for step in range(4):
                sum(loss_of(model(models.words(3 * step + i)), step) for i in range(3)).backward()
            results.append([p.grad for p in model.parameters()])
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(*results)))

    def test_autocast(self):
        def wrap(model):
            class Cast(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.model = model

                def forward(self, idx):
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        return self.model(idx)[0].float()

            return Cast()

        def make():
            return models.GPT(dropout=0.1)
        untouched, turned = Training(make, models.words, wrap=wrap), Training(make, models.words, wrap=wrap, turn=FULL)
        compare(self, turned, untouched)


class Kept(unittest.TestCase):
    """What is kept of an output shows a difference, and none between runs that are only rounded."""

    def test_sketch(self):
        compared = part("compared")
        draw = torch.Generator().manual_seed(3)
        for shape, dtype in (((7, 5), torch.float32), ((64, 128, 96), torch.float32), ((32, 96, 1024), torch.bfloat16)):
            x = torch.randn(shape, generator=draw).to(dtype)
            noise = torch.randn(shape, generator=draw)
            first = compared.sketch({"a": [x, (3, None)]})
            self.assertEqual(compared.difference(first, compared.sketch({"a": [x.clone(), (3, None)]})), "")
            rounded = x * (1 + noise * (1e-6 if dtype == torch.float32 else 2e-3)).to(dtype)
            self.assertEqual(compared.difference(first, compared.sketch([rounded])), "")
            masked = x * (torch.rand(shape, generator=draw) > 0.05)
            for other in (x * 0.97, masked, x.roll(1, 0), x.roll(1, -1), x + noise.mul(0.1).to(dtype)):
                self.assertIn("another, by", compared.difference(first, compared.sketch([other])))
            self.assertIn("shape", compared.difference(first, compared.sketch([x[1:]])))
            self.assertEqual(compared.difference(compared.sketch(x / 0), compared.sketch(x / 0)), "")
            self.assertIn("not finite", compared.difference(first, compared.sketch(x / 0)))


if __name__ == "__main__":
    unittest.main()
