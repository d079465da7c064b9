"""Cross entropy in parts of its rows: values, gradients, memory, and what it is not used for."""
import collections
import itertools
import json
import os
import subprocess
import sys
import unittest

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import cross_entropy  # a name from before
from torch.utils._python_dispatch import TorchDispatchMode

import models
from harness import part, rungs, some

PLAIN = torch._C._nn.cross_entropy_loss
SHAPES = (50, 33), (4, 7, 11), (3, 5, 6, 4)
ON = {"loss_parts": "on"}


class Loss(unittest.TestCase):
    def setUp(self):
        self.rungs = rungs()
        self.loss, self.calls = part("losspart"), part("losscalls")
        part("process").state["orders"] = {}

    def tearDown(self):
        torch._C._nn.cross_entropy_loss = PLAIN

    def turned(self, least=64, size=1000):
        """Turns it on, with logits of few bytes counting as large, and parts that work with few."""
        self.loss.LEAST, self.loss.WORK = least, size
        told = []
        result = self.rungs.apply(models.GPT(), ON, lambda knob, why: told.append(why))
        self.assertEqual(result, {"applied": {"loss_parts": ["off", "on"]}, "refused": {}, "failed": {}})
        return told

    def both(self, logits, target, dtype=None, function=F.cross_entropy, scale=1, **words):
        """Gives loss and gradient as PyTorch computes them, and in parts."""
        found = []
        for inside in (PLAIN, self.calls.state["mine"]):
            torch._C._nn.cross_entropy_loss = inside
            x = logits.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
                loss = function(x, target, **words)
            (loss * scale).backward(torch.ones_like(loss) + torch.arange(loss.numel()).view(loss.shape) % 3)
            found.append((loss.detach(), x.grad))
        return found

    def equal(self, found, rtol=1e-5, atol=1e-7):
        for one, other in zip(*found):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            self.assertTrue(torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True), (one - other).abs().max())

    def counted(self):
        """Counts the calls in parts: a comparison of PyTorch with itself would prove nothing."""
        plain, counts = self.loss.cross_entropy, []
        self.loss.cross_entropy = lambda *args: counts.append(1) or plain(*args)
        return counts

    def test_values(self):
        """The gradients are PyTorch's bit by bit, also in later steps, where they are made ahead; so is the loss.
        The exceptions are sums over weighted rows, over products of all classes, and over classes that are not in the last
        dimension, whose order of additions depends on the shape."""
        self.turned()
        counts, cases = self.counted(), 0
        for shape, soft, reduction, smoothing, weighted, kind, scale in some(itertools.product(
                SHAPES, (False, True), ("none", "mean", "sum"), (0.0, 0.1), (False, True), ("fp32", "fp64", "bf16", "autocast"), (1, 0.3)), 5):
            torch.manual_seed(cases)
            dtype = {"fp64": torch.float64, "bf16": torch.bfloat16, "autocast": torch.bfloat16}.get(kind, torch.float32)
            other = torch.float32 if kind == "autocast" else dtype
            words = {"reduction": reduction, "label_smoothing": smoothing, "weight": torch.rand(shape[1]).to(other) if weighted else None}
            if soft:
                target = torch.randn(shape).softmax(1).to(other)
            else:
                target = torch.randint(0, shape[1], shape[:1] + shape[2:])
                words["ignore_index"] = 3 if weighted else -100
                target.view(-1)[::5] = words["ignore_index"]
            near = 2e-2 if dtype is torch.bfloat16 else 1e-5
            logits = torch.randn(shape).to(dtype) * 8
            for step in range(3):
                found = self.both(logits, target, torch.bfloat16 if kind == "autocast" else None, scale=scale, **words)
                with self.subTest(shape=shape, soft=soft, kind=kind, step=step, **words):
                    (loss, gradient), (mine, made) = found
                    self.assertEqual((mine.dtype, mine.shape, made.dtype), (loss.dtype, loss.shape, gradient.dtype))
                    dense = len(shape) > 2 and (soft or smoothing)
                    exact = not dense and not (weighted and reduction == "mean")
                    self.assertTrue(torch.equal(made, gradient) if exact else torch.allclose(made, gradient, rtol=near, atol=near / 10), (made - gradient).abs().max())
                    exact = not dense and not soft and (not weighted or reduction == "none")
                    self.assertTrue(torch.equal(mine, loss) if exact else torch.allclose(mine, loss, rtol=near), (mine, loss))
            cases += 3
        self.assertEqual(len(counts), cases)

    def test_every_row_ignored(self):
        self.turned()
        found = self.both(torch.randn(50, 33), torch.full((50,), -100))
        self.assertTrue(found[1][0].isnan())
        self.equal(found)

    def test_name_from_before_and_module(self):
        self.turned()
        counts = self.counted()
        self.equal(self.both(torch.randn(50, 33), torch.randint(0, 33, (50,)), function=cross_entropy))
        self.equal(self.both(torch.randn(50, 33), torch.randint(0, 33, (50,)), function=nn.CrossEntropyLoss(label_smoothing=0.1)))
        self.assertEqual(len(counts), 2)

    def test_model_trains_the_same(self):
        losses = []
        for turn in (False, True):
            torch._C._nn.cross_entropy_loss = PLAIN
            if turn:
                self.turned()
            torch.manual_seed(1)
            model = models.GPT(tied=True)
            optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
            for step in range(3):
                words = torch.randint(0, models.WORDS, (4, 20), generator=torch.Generator().manual_seed(step))
                loss = model(words, words)[1]
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        for one, other in zip(losses[:3], losses[3:]):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def test_second_derivative(self):
        self.turned()
        found = []
        for inside in (PLAIN, self.calls.state["mine"]):
            torch._C._nn.cross_entropy_loss = inside
            x = torch.randn(50, 33, generator=torch.Generator().manual_seed(1)).requires_grad_()
            first, = torch.autograd.grad(F.cross_entropy(x * 2, torch.arange(50) % 33), x, create_graph=True)
            first.square().sum().backward()
            found.append((first.detach(), x.grad))
        self.equal(found, atol=1e-9)

    def test_errors_are_the_jobs(self):
        told = self.turned()
        with self.assertRaisesRegex(IndexError, "out of bounds"):
            F.cross_entropy(torch.randn(50, 33), torch.full((50,), 40))
        with self.assertRaisesRegex((ValueError, RuntimeError), "batch_size"):
            F.cross_entropy(torch.randn(50, 33), torch.zeros(49, dtype=torch.long))
        self.assertEqual(told, [])
        self.assertTrue(self.calls.state["on"])

    def test_logits_written_to(self):
        """PyTorch keeps no logits. Those whose gradient is there may be written to; else the error goes up, and the
        remedy is given up."""
        told = self.turned()
        for scale, fails in ((1, False), (3, True)):
            x = torch.randn(50, 33).requires_grad_()
            y = x * 1
            loss = F.cross_entropy(y, torch.arange(50) % 33)
            want, = torch.autograd.grad(PLAIN(x, torch.arange(50) % 33, None, 1, -100, 0.0), x)
            y.detach().zero_()
            if not fails:
                loss.backward()
                self.assertTrue(torch.equal(x.grad, want))
                continue
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                (loss * scale).backward()
        self.assertEqual(told, ["the job writes to the logits after the loss"])
        self.assertFalse(self.calls.state["on"])

    def test_gradient_is_made_ahead(self):
        """One softmax for each part where the gradient of the loss is that of the step before; two where it is another,
        or each row has its own. Nothing as large as a part is multiplied."""
        self.turned(size=50 * 33 * 4)
        x, y = torch.randn(50, 33).requires_grad_(), torch.arange(50) % 33
        F.cross_entropy(x, y)  # the first call looks how PyTorch does it

        def step(inside, scale, reduction):
            torch._C._nn.cross_entropy_loss, x.grad, ops = inside, None, Ops(33)
            with ops:
                loss = F.cross_entropy(x, y, reduction=reduction)
                (loss.sum() * scale).backward()
            return loss.detach(), x.grad, ops.count

        steps = ((1, "mean", 1, 1), (1, "mean", 1, 1), (3, "mean", 2, 2), (3, "mean", 2, 1), (3, "mean", 1, 1), (1, "mean", 2, 2), (2, "mean", 2, 1), (1, "none", 2, 1))
        for scale, reduction, softmaxes, gradients in steps:
            with self.subTest(scale=scale, reduction=reduction, softmaxes=softmaxes):
                loss, gradient, _ = step(PLAIN, scale, reduction)
                mine, made, count = step(self.calls.state["mine"], scale, reduction)
                self.assertTrue(torch.equal(mine, loss) and torch.equal(made, gradient))
                self.assertEqual((count["_log_softmax"], count["_log_softmax_backward_data"]), (2 * softmaxes, 2 * gradients))
                self.assertEqual(count["mul"] + count["mul_"] + count["div"], 0)

    def test_number_of_parts(self):
        """They are as few as the free memory allows, and each works with 256 MiB where so much is free."""
        rungs()
        loss = part("losspart")
        gib, logits = 1 << 30, torch.empty((8192, 151936), dtype=torch.bfloat16, device="meta")
        target, large = torch.empty((8192,), dtype=torch.long, device="meta"), logits.numel() * 4
        form = loss.Form(PLAIN, logits, target, None, 1, -100, 0.0, torch.float32, False)
        for free, most in ((None, 56), (100 * gib, 14), (gib, 28), (gib // 4, 64), (gib // 16, 56 * 4.5)):
            parts = form.parts(logits, free)
            self.assertEqual(sum(n for _, n, _, _ in parts), 8192)
            self.assertLessEqual(len(parts), most)
            work = parts[0][1] * 151936 * 4 * 3  # the logits in fp32, their log-softmax, and its gradient
            self.assertLessEqual(work, max((free or 0) / 2, min(256 << 20, free or 1 << 60)))
            if free is None or free > 256 << 20:
                self.assertGreater(work, 250 << 20)
        self.assertEqual(len(form.parts(logits[:40], 100 * gib)), 1)
        self.assertGreater(large, 4 * gib)

    def test_part_that_runs_out_of_memory(self):
        """It is done in halves, in the forward and the backward pass. Where single rows do not fit, the error goes up."""
        self.turned(size=50 * 33 * 4 * 2)
        for most, fits in ((7, True), (0, False)):
            plain = self.loss.Form.log_softmax

            def log_softmax(form, logits, part):
                if part[1] > most:
                    torch.empty(1 << 60, dtype=torch.uint8)
                return plain(form, logits, part)

            self.loss.Form.log_softmax = log_softmax
            try:
                if fits:
                    self.equal(self.both(torch.randn(50, 33), torch.arange(50) % 33, scale=5), rtol=0, atol=0)
                    self.equal(self.both(torch.randn(50, 33), torch.arange(50) % 33, reduction="none"), rtol=0, atol=0)
                else:
                    with self.assertRaisesRegex(RuntimeError, "can't allocate|not enough memory"):
                        F.cross_entropy(torch.randn(50, 33), torch.arange(50) % 33)
            finally:
                self.loss.Form.log_softmax = plain

    def test_no_gradient_is_made_without_need(self):
        self.turned()
        x, y = torch.randn(50, 33), torch.arange(50) % 33
        F.cross_entropy(x, y)
        for mode, wanted in ((torch.no_grad, True), (torch.inference_mode, False), (torch.enable_grad, False)):
            ops = Ops(33)
            with mode(), ops:
                value = F.cross_entropy(x.clone().requires_grad_(wanted), y)
            self.assertFalse(value.requires_grad)
            self.assertTrue(torch.equal(value, PLAIN(x, y, None, 1, -100, 0.0)))
            self.assertEqual((ops.count["nll_loss_backward"], ops.count["_log_softmax_backward_data"]), (0, 0))
            self.assertGreater(ops.count["_log_softmax"] + ops.count["log_softmax"], 1)
            self.assertLess(ops.largest, 50 * 33)

    def test_logits_are_read_after_the_loss(self):
        """A job computes its metrics from them, before and after the backward pass."""
        self.turned()
        x, y = torch.randn(50, 33).requires_grad_(), torch.arange(50) % 33
        logits = x * 2
        want = logits.detach().clone()
        loss = F.cross_entropy(logits, y)
        self.assertTrue(torch.equal(logits, want))
        loss.backward()
        self.assertTrue(torch.equal(logits, want))

    def test_several_backward_passes(self):
        """The graph is kept, and what the first pass got is changed by the job."""
        self.turned()
        found = []
        for inside in (PLAIN, self.calls.state["mine"]):
            torch._C._nn.cross_entropy_loss = inside
            x = torch.randn(50, 33, generator=torch.Generator().manual_seed(1)).requires_grad_()
            loss = F.cross_entropy(x * 2, torch.arange(50) % 33)
            loss.backward(retain_graph=True)
            first = x.grad.clone()
            x.grad.zero_()
            (loss * 0.7).backward(retain_graph=True)
            loss.backward()
            found.append((first, x.grad))
        self.equal(found, rtol=0, atol=0)

    def test_loss_scale(self):
        """In fp16 a gradient without the scale would lose its small values."""
        x, y = torch.randn(50, 33).half() * 4, torch.arange(50) % 33
        try:
            PLAIN(x, y, None, 1, -100, 0.0)
        except RuntimeError:
            self.skipTest("this PyTorch computes no log-softmax of fp16 on the CPU")
        self.turned()
        for _ in range(3):
            self.equal(self.both(x, y, scale=2.0 ** 12), rtol=0, atol=0)

    def test_small_logits_and_gradients_of_targets(self):
        self.turned(least=1 << 20)
        counts = self.counted()
        F.cross_entropy(torch.randn(50, 33), torch.randint(0, 33, (50,)))
        self.loss.LEAST = 64
        F.cross_entropy(torch.randn(50, 33), torch.randn(50, 33).softmax(1).requires_grad_())
        F.cross_entropy(torch.randn(33), torch.tensor(3))
        self.assertEqual(counts, [])

    def test_compiled(self):
        if not hasattr(torch, "compile"):
            self.skipTest("this PyTorch cannot compile")
        self.turned()
        counts = self.counted()

        @torch.compile(backend="aot_eager", fullgraph=True)
        def loss_of(x, y):
            return F.cross_entropy(x, y) * 2

        self.equal(self.both(torch.randn(50, 33), torch.randint(0, 33, (50,)), function=loss_of))
        self.assertEqual(counts, [])

    def test_scripted(self):
        self.turned()

        @torch.jit.script
        def loss_of(x: torch.Tensor, y: torch.Tensor):
            return F.cross_entropy(x, y)

        self.equal(self.both(torch.randn(50, 33), torch.randint(0, 33, (50,)), function=loss_of))

    def test_transforms(self):
        func = getattr(torch, "func", None)
        if func is None:
            self.skipTest("this PyTorch has no torch.func")
        self.turned()
        x, y = torch.randn(50, 33), torch.randint(0, 33, (50,))
        gradient = func.grad(lambda x: F.cross_entropy(x, y))(x)
        torch._C._nn.cross_entropy_loss = PLAIN
        self.assertTrue(torch.equal(gradient, func.grad(lambda x: F.cross_entropy(x, y))(x)))

    def test_refused(self):
        model = models.GPT()
        self.assertEqual(self.rungs.survey(model)["loss_parts"], self.calls.UNSEEN)
        self.calls.first(model, (torch.zeros(2, 3, dtype=torch.long),), {})
        F.cross_entropy(torch.randn(50, 33), torch.randint(0, 33, (50,)))
        self.assertEqual(self.rungs.survey(model)["loss_parts"], self.calls.UNSEEN)
        self.assertEqual(self.calls.state["largest"], 50 * 33 * 4)
        self.loss.LEAST = 50 * 33 * 4
        self.assertEqual(self.rungs.survey(model)["loss_parts"], "")
        self.calls.stepped()
        self.calls.state["largest"] = 0
        self.calls.stepped()  # nothing large was seen: PyTorch's own is back
        self.assertIs(torch._C._nn.cross_entropy_loss, PLAIN)

    def test_large_is_less_under_a_small_limit(self):
        """Logits of a twentieth of the memory are large, as those of 256 MiB are."""
        model, allowed = models.GPT(), part("room")
        self.loss.LEAST, self.loss.PART = 4000, 1000
        cpu = torch.device("cpu")
        for limit, large in ((0, 4000), (1 << 20, 4000), (20 * 1000, 1000)):
            allowed.allowed = lambda device, limit=limit: limit
            self.assertEqual([self.loss.is_large(size, cpu) for size in (large - 1, large)], [False, True])
            self.calls.first(model, (torch.zeros(2, 3, dtype=torch.long),), {})
            self.calls.state["largest"] = 1000
            self.assertEqual(self.rungs.survey(model)["loss_parts"], "" if large == 1000 else self.calls.UNSEEN)
        x, y = torch.randn(10, 33), torch.randint(0, 33, (10,))
        self.assertTrue(self.loss.works(torch, x, y, None, 1, -100, 0.0))

    def test_losses_of_the_first_evaluation(self):
        """An evaluation before the first step, of which the root is not known yet, uses parts if the plan does."""
        self.loss.LEAST, self.loss.PART = 64, 1000
        counts, orders = self.counted(), part("process").state["orders"]
        x, y = torch.randn(50, 33), torch.randint(0, 33, (50,))
        for turn, hooks, called in (({}, True, 0), (ON, False, 0), (ON, True, 1)):
            orders.update(turn=turn, hooks=hooks)
            self.calls.before_root(torch)
            with torch.no_grad():
                found = F.cross_entropy(x, y)
            self.assertEqual(len(counts), called)
            self.assertTrue(torch.allclose(found, PLAIN(x, y, None, 1, -100, 0.0)))
        self.calls.first(models.GPT(), (torch.zeros(2, 3, dtype=torch.long),), {})
        self.assertEqual(self.rungs.apply(models.GPT(), ON)["applied"], {"loss_parts": ["off", "on"]})

    def test_tokens_promise_large_logits(self):
        self.calls.first(models.GPT(), (torch.zeros(1 << 20, dtype=torch.long),), {})
        self.assertEqual(self.rungs.survey(models.GPT())["loss_parts"], "")

    def test_own_loss_of_tokens(self):
        """A backward pass began, and cross_entropy was never called: parts of it would not help."""
        model, process = models.GPT(), part("process")
        self.calls.first(model, (torch.zeros(1 << 20, dtype=torch.long),), {})
        self.addCleanup(process.told.pop, "refused", None)
        backward = part("backward")
        part("session").current.when_backpropagated.append(self.calls.computed)
        backward.arm(torch)
        self.addCleanup(backward.leave)
        torch.randn(50, 33, requires_grad=True).log_softmax(-1).sum().backward()
        self.assertEqual(process.told["refused"]["loss_parts"], self.calls.UNSEEN)

    def test_replaced(self):
        plain, F.cross_entropy = F.cross_entropy, lambda *args: 0
        try:
            self.assertIn("cross_entropy is replaced by", self.rungs.apply(models.GPT(), ON)["refused"]["loss_parts"])
        finally:
            F.cross_entropy = plain

    def test_memory(self):
        """256 MiB of logits in fp32, whose loss needs three times that in one piece."""
        out = subprocess.run([sys.executable, "-B", __file__], check=True, stdout=subprocess.PIPE).stdout
        most = json.loads(out)
        size = 256 << 20
        # The log-softmax, and in the backward two gradients; under autocast the logits in fp32, too. In parts the
        # gradient, and 128 MiB.
        self.assertGreater(most["plain fp32"], 2.9 * size)
        self.assertLess(most["parts fp32"], 1.7 * size)
        self.assertGreater(most["plain autocast"], 2.9 * size)
        self.assertLess(most["parts autocast"], 1.3 * size)


class Ops(TorchDispatchMode):
    """Counts the operators that make something with so many classes, and notes the elements of the largest result."""

    def __init__(self, classes):
        super().__init__()
        self.classes, self.count, self.largest = classes, collections.Counter(), 0

    def __torch_dispatch__(self, operator, kinds, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        name = operator.__name__.split(".")[0]
        for t in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(t, torch.Tensor) and t.dim() and t.shape[-1] == self.classes:
                self.count[name] += 1
                if name not in ("view", "detach", "slice", "clone", "alias", "_unsafe_view"):
                    self.largest = max(self.largest, t.numel())
        return found


def needs(parts, cast):
    """Gives the bytes that loss and backward need beside the logits, in a fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        if parts:
            made, loss = rungs(), part("losspart")
            loss.LEAST, loss.WORK, loss.MOST = 128 << 20, 128 << 20, 512 << 20
            made.apply(models.GPT(), ON)
        x = torch.zeros(4096, 16384, dtype=torch.bfloat16 if cast else torch.float32).requires_grad_()
        before = figure("VmRSS")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            F.cross_entropy(x, torch.arange(4096)).backward()
        os.write(write, b"%d" % (figure("VmHWM") - before))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        found = int(f.read())
    os.waitpid(pid, 0)
    return found


def figure(name):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name + ":"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"%s %s" % (way, kind): needs(way == "parts", kind == "autocast") for way in ("plain", "parts") for kind in ("fp32", "autocast")}))
