"""The model in parts of its batch: losses, gradients and statistics are those of the whole batch."""
import math
import os
import unittest

import torch
import torch.nn.functional as F
from torch import nn

import models
from harness import Saved, part, rungs, some

class Towers(nn.Module):
    """Two towers whose loss compares all samples of a batch."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 8))
        self.b = nn.Sequential(nn.Linear(9, 32), nn.GELU(), nn.Linear(32, 8))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x, y=None):
        return {"a": F.normalize(self.a(x), dim=-1), "b": F.normalize(self.b(y), dim=-1), "scale": self.scale.exp()}


def contrast(out):
    logits = out["scale"] * out["a"] @ out["b"].T
    at = torch.arange(len(logits))
    return (F.cross_entropy(logits, at) + F.cross_entropy(logits.T, at)) / 2


class Encoder(nn.Module):
    """An encoder of stages that are all different: there are no blocks to recompute."""

    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(16))
        self.stages(torch.zeros(1, 3, 12, 12))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.stages(x).relu())


def towers(n):
    return (torch.randn(n, 12),), {"y": torch.randn(n, 9)}


def pixels(n):
    return (torch.randn(n, 3, 12, 12),), {}


def idx(n):
    return (torch.randint(models.WORDS, (n, 16)),), {}


def labelled(n):
    x = torch.randint(models.WORDS, (n, 17))
    return (x[:, :-1],), {"targets": x[:, 1:]}


def last(out):
    return out[-1]


def logits_of(out):
    return F.cross_entropy(out[0].flatten(0, 1), torch.arange(out[0].shape[0] * out[0].shape[1]) % models.WORDS)


JOBS = {
    "GPT with the loss outside": (lambda: models.GPT(), idx, logits_of),
    "GPT with tied weights": (lambda: models.GPT(tied=True), idx, logits_of),
    "GPT with the loss inside": (lambda: models.GPT(), labelled, last),
    "contrastive towers": (Towers, towers, contrast),
    "encoder without repeated blocks": (Encoder, pixels, lambda out: out.square().mean()),
    "two lists of blocks": (models.EncoderDecoder, idx, lambda out: out.square().mean()),
}


class Job:
    """A few steps of a job, whole or in parts."""

    def __init__(self, make, batch, loss_of, parts=0, n=12, steps=3, accumulate=1, between=None, cast=None):
        torch.manual_seed(3)
        self.model = make()
        self.rows = []  # of each call of the forward
        self.model.register_forward_pre_hook(noting(self.rows))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.losses, self.gradients, self.noise = [], [], []
        for step in range(steps):
            for _ in range(accumulate):
                args, kwargs = batch(n)
                if parts and not step and not self.gradients and not self.losses:
                    self.result = turned(self.model, args, kwargs, parts)
                with torch.autocast("cpu", torch.bfloat16, enabled=cast is not None):
                    loss = loss_of(self.model(*args, **kwargs)) / accumulate
                loss.backward()
                self.losses.append(loss.detach().clone())
            self.gradients.append([None if p.grad is None else p.grad.clone() for p in self.model.parameters()])
            self.noise.append(torch.rand(2).tolist())
            if between:
                between(self.model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def noting(rows):
    def gpurun_hook(module, args):
        rows.append(len(args[0]))

    gpurun_hook = type(gpurun_hook)(gpurun_hook.__code__, dict(globals(), __name__="gpurun.test"), closure=gpurun_hook.__closure__)
    return gpurun_hook


def turned(model, args, kwargs, parts):
    """Turns the remedy, as the root's first call begins."""
    made, _ = looked(model, args, kwargs)
    return made.apply(model, {"forward_parts": parts})


def looked(model, args, kwargs):
    """Returns the remedies, and whether the rows depend on each other, at the root's first call."""
    made = rungs()
    part("rank").start.update(role="rank", told={"GPURUN_PROBE_ORDERS": os.devnull})
    return made, part("split").look(model, args, kwargs)


def refused(model, args, kwargs):
    """Return why a model is not run in parts."""
    result = turned(model, args, kwargs, 2)
    return result["refused"].get("forward_parts", "") or str(result["failed"] or "")


class Whole(nn.Module):
    """A model whose forward is a function."""

    def __init__(self, forward, dropout=0.0):
        super().__init__()
        self.w, self.v, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(dropout)
        self.body, self.calls = forward, 0

    def forward(self, *args, **kwargs):
        return self.body(self, *args, **kwargs)


def counting(self, x):
    self.calls += 1
    return self.w(x)


def unequal(self, x, labels):
    return F.cross_entropy(self.w(x).flatten(0, 1), labels.flatten())


def failing(self, x):
    """Runs out of memory with more than two rows and gradients."""
    if torch.is_grad_enabled() and len(x) > 2:
        raise no_memory()
    return self.w(x).tanh()


def no_memory():
    return RuntimeError("[enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes.")


class FailsInBackward(torch.autograd.Function):
    """Runs out of memory in the backward pass of more than two rows, once others have theirs."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if len(gradient) > 2:
            raise no_memory()
        return gradient


def failing_later(self, x):
    return self.v(FailsInBackward.apply(self.w(x)).tanh())


def failing_always(self, x):
    if torch.is_grad_enabled() and SHORT:
        raise no_memory()
    return self.w(x)


SHORT = []


def sixes(n):
    return (torch.randn(n, 6),), {}


class Split(unittest.TestCase):
    def setUp(self):
        torch.set_default_dtype(torch.float64)  # what is no rounding shows
        self.addCleanup(torch.set_default_dtype, torch.float32)

    def same(self, one, other, near=1e-12):
        for a, b in zip(one.losses, other.losses):
            self.assertLessEqual(float((a - b).abs()), near * float(b.abs()))
        for a, b in zip(one.gradients, other.gradients):
            whole = max(float(y.norm()) for y in b if y is not None)
            for x, y in zip(a, b):
                self.assertEqual(x is None, y is None)
                if x is not None:
                    self.assertLessEqual(float((x - y).norm()), near * whole)
        self.assertEqual(one.noise, other.noise)

    def test_parts_are_the_whole(self):
        for n, (name, (make, batch, loss_of)) in enumerate(JOBS.items()):
            whole = Job(models.without_dropout(make), batch, loss_of)
            for parts in some((2, 8) if n % 2 else (8, 2), 2):
                with self.subTest(name, parts=parts):
                    split = Job(models.without_dropout(make), batch, loss_of, parts)
                    self.assertEqual(split.result, {"applied": {"forward_parts": [1, parts]}, "refused": {}, "failed": {}})
                    self.same(split, whole)
                    self.assertEqual(max(split.rows), -(-12 // parts), "the largest part")
                    self.assertEqual(len(split.rows), 3 * 2 * parts, "a forward without gradients, and one with")

    def test_accumulated_and_in_fp32(self):
        make, batch, loss_of = JOBS["contrastive towers"]
        self.same(Job(make, batch, loss_of, 4, accumulate=3), Job(make, batch, loss_of, accumulate=3))
        torch.set_default_dtype(torch.float32)
        for make, batch, loss_of in JOBS.values():
            make = models.without_dropout(make)
            self.same(Job(make, batch, loss_of, 4), Job(make, batch, loss_of), near=2e-6)

    def test_autocast(self):
        torch.set_default_dtype(torch.float32)
        make, batch, loss_of = JOBS["GPT with the loss outside"]
        exact, whole, parts = Job(make, batch, loss_of), Job(make, batch, loss_of, cast=True), Job(make, batch, loss_of, 4, cast=True)
        # How bfloat16 is rounded is the processor's matter: parts are no further from the exact result than the whole.
        for precise, a, b in zip(exact.gradients, whole.gradients, parts.gradients):
            away, apart = (math.sqrt(sum(float((x - y).norm()) ** 2 for x, y in zip(each, precise) if y is not None)) for each in (a, b))
            self.assertLessEqual(apart, 1.5 * away)
        self.assertEqual(whole.noise, parts.noise)

    def test_dropout_of_the_backward_is_that_of_the_forward(self):
        torch.manual_seed(1)
        x = torch.randn(8, 6)
        one = Whole(lambda self, x: self.v(self.w(x) * torch.rand(())).tanh())
        self.assertIn("draws random numbers for its whole batch", turned(one, (x,), {}, 4)["refused"]["forward_parts"])
        model = Whole(lambda self, x: self.v(self.drop(self.w(x)) * torch.rand(len(x), 1)).tanh(), dropout=0.5)
        self.assertEqual(turned(model, (x,), {}, 4)["applied"], {"forward_parts": [1, 4]})
        found = []
        for call in (model, lambda x: torch.cat([model.body(model, rows) for rows in x.split(2)])):
            torch.manual_seed(2)
            model.zero_grad(set_to_none=True)
            output = call(x)
            noise = torch.rand(2)
            output.square().sum().backward()
            found.append([output.detach()] + [p.grad for p in model.parameters() if p.grad is not None] + [noise, torch.rand(2)])
        for one, other in zip(*found):
            self.assertTrue(torch.allclose(one, other, rtol=1e-12), (one, other))

    def test_only_one_part_is_saved(self):
        make, batch, loss_of = JOBS["encoder without repeated blocks"]
        model = make()
        args, kwargs = batch(16)
        saved = []
        for parts in (0, 8):
            if parts:
                turned(model, args, kwargs, parts)
            with Saved(model) as forward:
                loss = loss_of(model(*args, **kwargs))
            with Saved(model) as backward:
                loss.backward()
            saved.append((forward.bytes, backward.bytes))
        self.assertEqual(saved[0][1], 0)
        self.assertLess(saved[1][0], 0.6 * saved[0][0], "the inputs, and the loss on the outputs")

    def test_a_parameter_gets_one_gradient(self):
        """It is the sum itself: no copy of all gradients is made in the end."""
        model, x = Whole(lambda self, x: self.w(x)), torch.randn(8, 6)
        turned(model, (x,), {}, 4)
        sums, calls = part("split").Sums, []
        plain = sums.found
        sums.found = lambda self: [calls.append(t.data_ptr()) for t in self.sums if t is not None] and plain(self)
        model(x).sum().backward()
        self.assertEqual({p.grad.data_ptr() for p in model.w.parameters()}, set(calls))

    def test_inputs_that_are_no_rows_by_chance(self):
        """Some have as many rows as the batch."""
        def positions(self, x, at, mask=None):
            return (self.w(x) + at).tanh() * (1 if mask is None else mask[:, None])

        def batch(n):
            return (torch.randn(n, n, 6), torch.randn(n, 6)), {"mask": torch.ones(n)}

        def make():
            return Whole(positions)

        def loss_of(out):
            return out.square().mean()

        split = Job(make, batch, loss_of, 4, n=8)
        self.assertEqual(split.result["applied"], {"forward_parts": [1, 4]})
        self.same(split, Job(make, batch, loss_of, n=8))
        self.assertEqual(max(split.rows), 2)

    def test_inputs_with_gradients(self):
        found = []
        for parts in (0, 4):
            torch.manual_seed(1)
            model, x, table = Whole(lambda self, x, table: self.w(x).tanh() @ table), torch.randn(8, 6), torch.randn(6, 3)
            if parts:
                self.assertEqual(turned(model, (x, table), {}, parts)["applied"], {"forward_parts": [1, 4]})
            x, table = x.requires_grad_(), table.requires_grad_()
            model(x * 2, table).square().sum().backward()
            found.append([x.grad, table.grad, model.w.weight.grad])
        for one, other in zip(*found):
            self.assertTrue(torch.allclose(one, other, rtol=1e-12))

    def test_losses_inside_the_model(self):
        """A mean over equally many items, and a sum that is divided by a number given."""
        def counted(self, x, labels=None, num_items_in_batch=1):
            return F.cross_entropy(self.w(x).flatten(0, 1), labels.flatten(), reduction="sum") / num_items_in_batch, self.w(x)

        def batch(n):
            labels = torch.randint(6, (n, 5))
            labels[0, 1] = labels[3, 2] = labels[3, 3] = -100
            return (torch.randn(n, 5, 6),), {"labels": labels, "num_items_in_batch": torch.tensor(37)}

        split, whole = (Job(lambda: Whole(counted), batch, lambda out: out[0], parts) for parts in (4, 0))
        self.assertEqual(split.result["applied"], {"forward_parts": [1, 4]})
        self.same(split, whole)

        # A mean over labels of which some are ignored is not the mean of the parts' means.
        model, x, labels = Whole(unequal), torch.randn(8, 5, 6), torch.randint(6, (8, 5))
        reasons = []
        made, _ = looked(model, (x, labels), {})
        self.assertEqual(made.apply(model, {"forward_parts": 2}, lambda *why: reasons.append(why))["applied"], {"forward_parts": [1, 2]})
        rows = []
        model.register_forward_pre_hook(noting(rows))
        whole = model.body(model, x, labels)
        self.assertTrue(torch.allclose(model(x, labels), whole, rtol=1e-12))
        self.assertEqual((rows, reasons), ([4, 4], []))
        labels[6, 2:] = -100
        self.assertTrue(torch.equal(model(x, labels), model.body(model, x, labels)))
        self.assertEqual((rows[2:], reasons), ([8], [("forward_parts", "the model's loss is a mean over unequally many items")]))

    def test_what_is_refused(self):
        x = torch.randn(8, 6)

        def backward_hook(model):
            model.w.register_full_backward_hook(lambda *_: None)
            return model

        def parameter_hook(model):
            model.w.weight.register_hook(lambda g: g)
            return model

        def forward_hook(model):
            model.w.register_forward_hook(lambda *_: None)
            return model

        def linear(self, x):
            return self.w(x)

        from torch.utils.checkpoint import checkpoint

        for why, model, args in (
            ("BatchNorm1d takes statistics over the batch", with_norm(), (x,)),
            ("computes a row from others", Whole(lambda self, x: self.w(x).softmax(0)), (x,)),
            ("computes a row by the size of the batch", Whole(lambda self, x: self.w(x) * len(x)), (x,)),
            ("changes the attribute calls", Whole(counting), (x,)),
            ("has a hook on its backward", backward_hook(Whole(linear)), (x,)),
            ("a parameter has a hook on its gradient", parameter_hook(Whole(linear)), (x,)),
            ("has a hook on its forward", forward_hook(Whole(linear)), (x,)),
            ("use_reentrant=True", Whole(lambda self, x: checkpoint(self.w, x.requires_grad_(), use_reentrant=True)), (x,)),
            ("neither a mean nor a sum", Whole(lambda self, x: self.w(x).square().mean().sqrt()), (x,)),
            ("follows from the whole batch", Whole(lambda self, x: (self.w(x), len(x))), (x,)),
            ("writes to its inputs", Whole(lambda self, x: self.w(x.add_(1))), (x,)),
            ("a batch of one row", Whole(linear), (x[:1],)),
            ("DataParallel", nn.DataParallel(Whole(linear)), (x,)),
        ):
            with self.subTest(why):
                self.assertIn(why, refused(model, args, {}))

    def test_inputs_stay_as_they_are_when_the_first_call_is_looked_at(self):
        """Whether they are rows of the batch, or not."""
        x, counter = torch.randn(8, 6), torch.zeros(3)
        for samples in (x, [row for row in x]):
            given = [row.clone() for row in samples]
            refused(Whole(lambda self, samples, counter: self.w(torch.stack([s.add_(counter.add_(1)[0]) for s in samples]))), (samples, counter), {})
            self.assertEqual((all(map(torch.equal, given, samples)), counter.tolist()), (True, [0.0] * 3))

    def test_norms_in_evaluation_take_no_statistics(self):
        model = with_norm()
        model.norm.eval()
        self.assertEqual(refused(model, (torch.randn(8, 6),), {}), "")

    def test_parts_are_halved_where_memory_runs_out(self):
        for short, enough in ((failing, lambda self, x: self.w(x).tanh()), (failing_later, lambda self, x: self.v(self.w(x).tanh()))):
            with self.subTest(short.__name__):
                found, failures = [], []
                for body in (enough, short):
                    torch.manual_seed(4)
                    model, x = Whole(body), torch.randn(12, 6)
                    if body is short:
                        split = halving(model, (x,), 2)
                        split.halved = lambda call, phase, failed, _: failures.append((phase, call.grad, str(failed)[-9:-1], split.parts[True]))
                    model(x).square().sum().backward()
                    found.append([p.grad for p in model.parameters() if p.grad is not None])
                for one, other in zip(*found):
                    self.assertTrue(torch.allclose(one, other, rtol=1e-12))
                self.assertEqual((split.parts[True], failures[0]), (6, ("backward", True, "64 bytes", 4)))

    def test_an_error_that_stays_is_the_jobs_own(self):
        model, x = Whole(failing_always), torch.randn(8, 6)
        halving(model, (x,), 2)
        SHORT.append(True)
        self.addCleanup(SHORT.clear)
        output = model(x)
        with self.assertRaisesRegex(RuntimeError, "DefaultCPUAllocator"):
            output.sum().backward()
        self.assertTrue(all(p.grad is None for p in model.parameters()))

    def test_parts_that_draw_are_tried_before_the_job_has_the_output(self):
        """Their halves would draw other numbers than the output that the loss was computed from."""
        torch.manual_seed(6)
        model, x = Whole(lambda self, x: failing(self, self.drop(x)), dropout=0.5), torch.randn(12, 6)
        split = halving(model, (x,), 2)
        rows = []
        model.register_forward_pre_hook(noting(rows))
        torch.manual_seed(7)
        output = model(x)
        self.assertEqual((split.parts[True], split.fitted, rows), (6, 2, [6, 6, 6, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2]))
        torch.manual_seed(7)
        whole = torch.cat([model.body(model, each) for each in x.split(2)])
        self.assertTrue(torch.allclose(output, whole, rtol=1e-12))
        del rows[:]
        output.square().sum().backward()
        found = model.w.weight.grad.clone()
        model.zero_grad()
        whole.square().sum().backward()
        self.assertTrue(torch.allclose(found, model.w.weight.grad, rtol=1e-12))
        self.assertEqual(rows, [2] * 6)

    def test_evaluation_in_parts(self):
        torch.manual_seed(5)
        model, x = Whole(lambda self, x: {"y": self.w(x), "n": x[:, 0] > 0}), torch.randn(9, 6)
        rows = []
        model.register_forward_pre_hook(noting(rows))
        turned(model, (x,), {}, 4)
        model.eval()
        with torch.no_grad():
            out = model(x)
        self.assertEqual(rows, [2, 2, 2, 3])
        whole = model.body(model, x)
        self.assertTrue(torch.allclose(out["y"], whole["y"], rtol=1e-12) and torch.equal(out["n"], whole["n"]))
        self.assertFalse(out["y"].requires_grad)

    def test_parts_that_write_to_their_inputs_end_the_forward(self):
        """The few rows of the first look are not written to."""
        model, x = Whole(lambda self, x: self.w(x.add_(1) if len(x) > 4 else x)), torch.randn(12, 6)
        turned(model, (x,), {}, 2)
        with self.assertRaisesRegex(RuntimeError, "runs no part of the batch.*the forward writes to its inputs"):
            model(x)

    def test_gradients_of_gradients_end_the_backward(self):
        model, x = Whole(lambda self, x: self.w(x).tanh()), torch.randn(8, 6)
        turned(model, (x,), {}, 2)
        loss = model(x).square().sum()
        with self.assertRaisesRegex(RuntimeError, "gradients of gradients"):
            torch.autograd.grad(loss, list(model.w.parameters()), create_graph=True)

    def test_transformers(self):
        try:
            from transformers import GPT2Config, GPT2LMHeadModel
        except ImportError:
            self.skipTest("transformers is not there")
        torch.set_default_dtype(torch.float32)
        config = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=40, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

        def batch(n):
            x = torch.randint(40, (n, 12))
            return (x,), {"labels": x, "attention_mask": torch.ones_like(x)}

        split, whole = (Job(lambda: GPT2LMHeadModel(config), batch, lambda out: out.loss, parts) for parts in (4, 0))
        self.assertEqual(split.result, {"applied": {"forward_parts": [1, 4]}, "refused": {}, "failed": {}})
        self.same(split, whole, near=2e-6)


def with_norm():
    model = Whole(lambda self, x: self.norm(self.w(x)))
    model.norm = nn.BatchNorm1d(6)
    return model


def halving(model, args, parts):
    """Turns the remedy, and allows it to halve parts."""
    turned(model, args, {}, parts)
    split = part("split").state["turned"]
    split.halves = True
    return split


if __name__ == "__main__":
    unittest.main()
