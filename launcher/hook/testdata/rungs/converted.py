"""Logits that a loss converts to fp32, cuts and flattens: all of that is done in parts."""
import copy
import io
import unittest

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import models
from harness import part, rungs

PLAIN = torch._C._nn.cross_entropy_loss
ROWS, LENGTH, WORDS = 6, 9, 33


def causal_loss(logits, labels, items=None):
    """transformers' ForCausalLMLoss."""
    logits = logits.float()
    labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    loss = F.cross_entropy(logits.view(-1, WORDS), labels.view(-1).to(logits.device), ignore_index=-100, reduction="mean" if items is None else "sum")
    return loss if items is None else loss / items


def shifted_loss(logits, labels):
    """Its models before."""
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    return nn.CrossEntropyLoss()(shifted.view(-1, WORDS), labels[..., 1:].contiguous().view(-1))


def chunked_loss(logits, labels):
    """torchtune's CEWithChunkedOutputLoss."""
    total, chunks = 0.0, [c.reshape(-1, WORDS) for c in logits.chunk(2, dim=1)]
    for chunk, aim in zip(chunks, [c.reshape(-1) for c in labels.chunk(2, dim=1)]):
        total += F.cross_entropy(chunk.float(), aim, ignore_index=-100, reduction="sum")
    return total / (labels != -100).sum()


def loop_loss(logits, labels):
    return F.cross_entropy(logits.to(torch.float32)[:, :-1].reshape(-1, WORDS), labels[:, 1:].flatten(), label_smoothing=0.1)


def flat_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].to(dtype=torch.float32).flatten(0, 1), labels[:, 1:].flatten(), reduction="none").view(ROWS, -1).mean(1).sum()


def places_loss(logits, labels):
    return F.cross_entropy(logits.transpose(1, 2).float(), labels)


def soft_loss(logits, labels):
    aims = F.one_hot(labels[:, 1:].clamp(min=0), WORDS).float()
    return F.cross_entropy(logits.float()[:, :-1].reshape(-1, WORDS), aims.view(-1, WORDS))


LOSSES = causal_loss, lambda x, y: causal_loss(x, y, 41), shifted_loss, chunked_loss, loop_loss, flat_loss, places_loss
OTHERS = soft_loss,


class Largest(TorchDispatchMode):
    """Notes the elements of the largest tensor in fp32 that has the classes in one of its dimensions."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, operator, kinds, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        for t in found if isinstance(found, (tuple, list)) else [found]:
            if type(t) is torch.Tensor and t.device.type == "cpu" and t.dtype == torch.float32 and WORDS in t.shape:
                self.elements = max(self.elements, t.numel())
        return found


class Converted(unittest.TestCase):
    def setUp(self):
        self.rungs = rungs()
        self.loss, self.calls, self.upcast = part("losspart"), part("losscalls"), part("upcast")
        self.process, self.room = part("process"), part("room")
        self.loss.LEAST, self.loss.WORK, self.loss.MOST, self.upcast.state["least"] = 64, 4000, 4000, 64
        part("garbage").collect = lambda: None
        torch.manual_seed(1)
        self.logits = (torch.randn(ROWS, LENGTH, WORDS) * 4).bfloat16()
        self.labels = torch.randint(0, WORDS, (ROWS, LENGTH))
        self.labels[:, ::4] = -100

    def tearDown(self):
        self.upcast.leave()
        torch._C._nn.cross_entropy_loss = PLAIN

    def turn(self):
        self.rungs.apply(models.GPT(), {"loss_parts": "on"})

    def run_loss(self, loss, scale=1.0):
        """Gives the loss, the gradient of the logits, and how large a tensor in fp32 there was."""
        x = self.logits.clone().requires_grad_()
        with Largest() as largest:
            value = loss(x * 1, self.labels)
            (value * scale).backward()
        return value.detach(), x.grad, largest.elements

    def test_values(self):
        """They are bit-equal to those of one piece, but for sums over all classes, whose order depends on the shape. The
        logits in fp32 are never there as a whole."""
        for loss in LOSSES + OTHERS:
            for scale in (1.0, 0.3):
                self.upcast.leave()
                torch._C._nn.cross_entropy_loss = PLAIN
                want, gradient, large = self.run_loss(loss, scale)
                self.calls.state.update(on=False)
                self.calls.state.pop("plain", None)
                self.turn()
                for _ in range(3):
                    value, made, most = self.run_loss(loss, scale)
                    self.assertTrue(torch.equal(made, gradient), loss)
                    self.assertTrue(torch.allclose(value, want, rtol=1e-6) if loss in (loop_loss, soft_loss) else torch.equal(value, want), (loss, value, want))
                    self.assertGreaterEqual(large, ROWS * (LENGTH - 1) // 2 * WORDS)
                    if loss in LOSSES:
                        self.assertLess(most, large / 2, loss)

    def test_without_gradients(self):
        want = causal_loss(self.logits, self.labels)
        self.turn()
        with torch.no_grad(), Largest() as largest:
            self.assertTrue(torch.equal(causal_loss(self.logits, self.labels), want))
        self.assertLess(largest.elements, self.logits.numel() / 3)

    def test_other_uses_get_the_whole_tensor(self):
        """They get its numbers and its gradient, whatever uses it."""
        class Squares(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return (x * x).sum()

            @staticmethod
            def backward(ctx, gradient):
                return 2 * ctx.saved_tensors[0] * gradient

        def hooked(x):
            x.register_hook(lambda gradient: gradient * 2)
            return x.sum()

        uses = {
            "another loss": lambda x: F.nll_loss(x.log_softmax(-1).flatten(0, 1), self.labels.flatten()), "autograd function": Squares.apply,
            "z loss": lambda x: x.logsumexp(-1).square().mean(), "a mask": lambda x: x[self.labels != -100].square().sum(),
            "in place": lambda x: x.mul_(2).square().sum(), "columns": lambda x: x[..., :5].exp().sum(), "rows": lambda x: x[1].square().sum(),
            "joined": lambda x: torch.cat([x, x]).square().sum(), "turned": lambda x: x.permute(2, 0, 1).reshape(WORDS, -1).square().sum(),
            "other type": lambda x: x.to(torch.float64).square().sum(), "in C": lambda x: torch._C._nn.cross_entropy_loss(x.view(-1, WORDS), self.labels.flatten(), None, 2, -100, 0.0),
        }
        for name, use in uses.items():
            found = []
            for on in (False, True):
                if on:
                    self.turn()
                x = self.logits.clone().requires_grad_()

                def loss():
                    return use((x * 1).float())

                value = loss()
                value.backward()
                found.append((value.detach(), x.grad))
                self.upcast.leave()
            with self.subTest(use=name):
                self.assertTrue(torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1]))

    def test_it_looks_like_a_tensor_in_fp32(self):
        self.turn()

        def loss():
            return self.logits.float()

        found, want = loss(), self.logits.double().float()
        self.assertIsNot(type(found), torch.Tensor)
        self.assertEqual((found.shape, found.dtype, found.dim(), len(found), found.numel(), found.stride(), found.device), (want.shape, want.dtype, 3, ROWS, want.numel(), want.stride(), want.device))
        for same in (found.tolist(), found.detach().numpy().tolist(), copy.deepcopy(found).tolist(), [each.tolist() for each in found]):
            self.assertEqual(same, want.tolist())
        file = io.BytesIO()
        torch.save(found, file)
        file.seek(0)
        self.assertTrue(torch.equal(torch.load(file), want))
        self.assertEqual(repr(found), repr(want))

    def test_metrics_after_the_loss(self):
        self.turn()
        x = (self.logits.clone().requires_grad_() * 1)

        def loss():
            logits = x.float()
            value = F.cross_entropy(logits.view(-1, WORDS), self.labels.view(-1))
            value.backward()
            return logits.argmax(-1)

        self.assertTrue(torch.equal(loss(), self.logits.argmax(-1)))

    def test_what_is_not_converted_later(self):
        self.turn()
        x = self.logits

        def loss():
            return [x.float(), x.double().float(), x[0, 0, :20].float(), x[..., 0].float(), nn.Parameter(x).float(), x.long().float(), x.to("cpu"), x.to(torch.float64), x.to(x)]

        def forward():
            return x.float()

        found = loss()
        self.assertEqual([type(t) is torch.Tensor for t in found], [False] + [True] * 8)
        self.assertIs(type(forward()), torch.Tensor)
        self.calls.give_up("as a test wants it")
        self.assertIs(type(loss()[0]), torch.Tensor)

    def test_in_place(self):
        """It is converted later where too little is left for the loss in one piece, and from then on."""
        want, gradient, _ = self.run_loss(shifted_loss)
        model, size = models.GPT(), self.logits.numel() * 4
        self.process.state["orders"] = {"hooks": True, "in_place": {"rungs": ["loss-parts"]}}
        self.calls.first(model, (torch.zeros(4, 20, dtype=torch.long),), {})
        for free, in_parts in ((None, False), (5 * size, False), (3 * size, True), (9 * size, True)):
            self.room.free = lambda device, free=free: free
            value, made, most = self.run_loss(shifted_loss)
            self.assertTrue(torch.equal(value, want) and torch.equal(made, gradient))
            self.assertEqual(most < self.logits.numel() / 3, in_parts, free)
        entry, = self.process.told["in_place"]
        self.assertEqual((entry["phase"], entry["rung"], entry["times"], entry["elements"]), ("loss", "loss-parts", 1, ROWS * (LENGTH - 1) * WORDS))

    def test_conversion_that_fails(self):
        """Nothing was foreseen: PyTorch's own runs out of memory, and the loss is computed in parts."""
        want, gradient, _ = self.run_loss(shifted_loss)
        plain, failed = torch.Tensor.float, []

        def full(tensor, *args):
            if tensor.shape == self.logits.shape and not failed:
                failed.append(1)
                torch.empty(1 << 60, dtype=torch.uint8)
            return plain(tensor, *args)

        torch.Tensor.float = full
        self.process.state["orders"] = {"hooks": True, "in_place": {"rungs": ["loss-parts"]}}
        self.calls.first(models.GPT(), (torch.zeros(4, 20, dtype=torch.long),), {})
        self.room.free = lambda device: None
        value, made, most = self.run_loss(shifted_loss)
        self.assertTrue(torch.equal(value, want) and torch.equal(made, gradient))
        self.assertLess(most, self.logits.numel() / 3)
        self.assertEqual(failed, [1])

    def test_checkpointed_loss(self):
        """What a checkpoint has around it computes the loss twice, and keeps no gradient in between."""
        from torch.utils.checkpoint import checkpoint

        found = []
        for on in (False, True):
            if on:
                self.turn()
            for reentrant in (False, True):
                x = self.logits.clone().requires_grad_()
                value = checkpoint(causal_loss, x * 1, self.labels, use_reentrant=reentrant)
                value.backward()
                found.append((value.detach(), x.grad))
        for value, gradient in found[1:]:
            self.assertTrue(torch.equal(value, found[0][0]) and torch.equal(gradient, found[0][1]))

    def test_small_losses_are_not_looked_at(self):
        plain = torch.Tensor.float
        self.turn()
        self.assertIsNot(torch.Tensor.float, plain)
        self.calls.state.update(on=False, least=float("inf"), largest=3)
        self.calls.stepped()
        self.assertIs(torch.Tensor.float, plain)

    def test_transformers(self):
        try:
            from transformers import LlamaConfig, LlamaForCausalLM
        except ImportError:
            self.skipTest("transformers is not installed")
        torch.manual_seed(1)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)).bfloat16()
        found, words = [], torch.randint(0, WORDS, (4, 20))
        for turn in (False, True):
            if turn:
                self.turn()
            for items in ({}, {"num_items_in_batch": torch.tensor(70)}):
                model.zero_grad()
                with Largest() as largest:
                    output = model(input_ids=words, labels=words, **items)
                    output.loss.backward()
                self.assertEqual(largest.elements < 80 * WORDS / 3, turn)
                found.append([output.loss.detach(), output.logits.detach()] + [p.grad.clone() for p in model.parameters()])
        for one, other in zip(found[:2], found[2:]):
            for a, b in zip(one, other):
                self.assertTrue(torch.equal(a, b))
