"""What others see of a model whose rungs are turned is what they saw before."""
import copy
import gc
import inspect
import io
import pickle
import sys
import unittest
import weakref

import torch
from torch import nn

import models
from harness import Saved, loss_of, part, rungs

TURN = {"activation_checkpointing": "full", "precision": "bf16"}


def turned(model, turn=TURN):
    """A model with rungs turned, after one step."""
    result = rungs().apply(model, turn)
    assert set(result["applied"]) == set(turn), result
    loss_of(model(models.words(0)), 0).backward()
    return model


class Outside(unittest.TestCase):
    def test_attributes(self):
        model = models.GPT()
        before = {n: (sorted(m.__dict__), type(m), list(m.state_dict())) for n, m in model.named_modules()}
        turned(model)
        self.assertEqual(before, {n: (sorted(m.__dict__), type(m), list(m.state_dict())) for n, m in model.named_modules()})

    def test_calls_that_answer_questions_are_not_measured(self):
        class Listener:
            def __init__(self):
                self.heard = []

            def begin(self, args, kwargs):
                self.heard.append("begin")

            def end(self, output):
                self.heard.append("end")

        rungs()
        calls, listener, root = part("rootcalls"), Listener(), nn.Linear(2, 2)
        calls.listen(root, listener)
        part("session").current.asked = True
        root(torch.ones(1, 2))
        self.assertEqual(listener.heard, [])
        part("session").current.asked = False
        root(torch.ones(1, 2))
        self.assertEqual(listener.heard, ["begin", "end"])

    def test_pickle(self):
        model = turned(models.GPT())
        for load in (lambda: pickle.loads(pickle.dumps(model)), lambda: self.through_file(model), lambda: copy.deepcopy(model)):
            other = load()
            self.assertIs(type(other), models.GPT)
            self.assertIs(type(other.transformer.h[0]), models.Block)
            model.zero_grad()
            other.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16), Saved(other) as saved:
                a = loss_of(other(models.words(1)), 1)
            with Saved(model) as less:
                b = loss_of(model(models.words(1)), 1)
            self.assertGreater(saved.bytes, less.bytes, "a copy is left alone")
            self.assertTrue(torch.allclose(a.float(), b, rtol=1e-2))
            a.backward()
            b.backward()

    def through_file(self, model):
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        try:
            return torch.load(file, weights_only=False)
        except TypeError:
            return torch.load(file)

    def test_pickle_by_value(self):
        try:
            import cloudpickle
        except ImportError:
            self.skipTest("there is no cloudpickle")
        room = {"__name__": "__main__", "nn": nn}
        exec("class B(nn.Module):\n  def __init__(s):\n    super().__init__(); s.l = nn.Linear(4, 4)\n  def forward(s, x): return s.l(x)", room)
        model = nn.Sequential(room["B"](), room["B"]())
        self.assertIn("activation_checkpointing", rungs().apply(model, {"activation_checkpointing": "full"})["applied"])
        x = torch.randn(2, 4)
        self.assertTrue(torch.equal(cloudpickle.loads(cloudpickle.dumps(model))(x), model(x)))

    def test_signature(self):
        before = inspect.signature(models.GPT.forward), inspect.signature(models.Block.forward)
        model = turned(models.GPT())
        self.assertEqual(before, (inspect.signature(models.GPT.forward), inspect.signature(models.Block.forward)))
        self.assertEqual(list(inspect.signature(model.forward).parameters), ["idx", "targets"])
        self.assertTrue(inspect.ismethod(model.forward))
        self.assertEqual((model.forward.__name__, model.forward.__module__), ("forward", "models"))

    def test_hooks(self):
        model, calls = models.GPT(), []
        for i, block in enumerate(model.transformer.h):
            block.register_forward_pre_hook(lambda m, a, i=i: calls.append(("before", i)))
            block.register_forward_hook(lambda m, a, o, i=i: calls.append(("after", i)))
            block.register_full_backward_hook(lambda m, a, o, i=i: calls.append(("backward", i)))
        model.register_forward_hook(lambda m, a, o: calls.append(o[0].dtype))
        turned(model)
        self.assertEqual(calls, [(w, i) for i in range(4) for w in ("before", "after")] + [torch.float32] + [("backward", i) for i in (3, 2, 1, 0)])

    def test_modules(self):
        before, path = set(sys.modules), list(sys.path)
        turned(models.GPT())
        new = {name for name in set(sys.modules) - before if not name.startswith(("torch", "_", "importlib"))}
        self.assertFalse(new & {"rungs", "blocks", "checkpointing", "forwards", "offload", "attention", "autocast"}, new)
        self.assertEqual(path, sys.path)

    def test_script_and_trace(self):
        class Leaf(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                return torch.relu(self.linear(x))

        model = nn.Sequential(Leaf(), Leaf())
        self.assertIn("activation_checkpointing", rungs().apply(model, {"activation_checkpointing": "full"})["applied"])
        x = torch.randn(2, 4)
        for other in (torch.jit.script(model), torch.jit.trace(model, x), torch.fx.symbolic_trace(model)):
            self.assertTrue(torch.equal(other(x), model(x)))

    def test_functional_transforms(self):
        if not hasattr(torch, "func"):
            self.skipTest("this PyTorch has no torch.func")
        model = models.Swin().eval()
        weights, x = dict(model.named_parameters()), models.patches(0)

        def gradient():
            return torch.func.grad(lambda w: torch.func.functional_call(model, w, (x,)).square().sum())(weights)

        before = gradient()
        self.assertIn("activation_checkpointing", rungs().apply(model, {"activation_checkpointing": "full"})["applied"])
        after = gradient()
        self.assertTrue(all(torch.equal(before[name], after[name]) for name in before))

    def test_other_instances(self):
        other = models.GPT()
        with Saved(other) as before:
            other(models.words(0))
        model = turned(models.GPT())
        with Saved(other) as after:
            other(models.words(0))
        self.assertEqual(before.bytes, after.bytes)
        self.assertGreater(before.bytes, 0)
        self.assertIsNot(model, other)

    def test_nothing_is_kept_alive(self):
        model = turned(models.GPT(), {"activation_checkpointing": "full"})
        block, model = weakref.ref(model.transformer.h[0]), weakref.ref(model)
        gc.collect()
        self.assertIsNone(model())
        self.assertIsNone(block())

    def test_memory_is_freed_at_once(self):
        """No cycle keeps a step's tensors until the collector comes."""
        model = models.GPT()
        rungs().apply(model, {"activation_checkpointing": "full"})
        seen = []
        model.transformer.h[1].register_forward_hook(lambda m, a, o: seen.append(weakref.ref(o)))
        gc.disable()
        try:
            for step in range(2):
                loss_of(model(models.words(step)), step).backward()
                model(models.words(step))  # no backward pass follows
            self.assertEqual([ref() for ref in seen], [None] * 4)
        finally:
            gc.enable()
