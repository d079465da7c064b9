"""The training is the same with activation checkpointing, and less is saved for the backward pass."""
import unittest

import torch
from torch import nn

import models
from harness import Training, compare, loss_of, rungs

FULL = {"activation_checkpointing": "full"}


class EqualTraining(unittest.TestCase):
    def equal(self, make, batch, exact=True, less=0.75, turn=FULL, **more):
        told = []
        untouched = Training(make, batch, **more)
        turned = Training(make, batch, turn=turn, told=told, **more)
        self.assertEqual(turned.result, {"applied": {k: ["none", v] for k, v in turn.items()}, "refused": {}, "failed": {}})
        self.assertEqual(told, [])
        compare(self, turned, untouched, exact)
        for a, b in zip(turned.saved, untouched.saved):
            self.assertLess(a, less * b, "bytes saved for the backward pass: the rung does too little")
        return turned

    def test_gpt(self):
        self.equal(models.GPT, models.words, less=0.4)

    def test_loss_inside(self):
        self.equal(lambda: models.GPT(), models.words, kwargs={"targets": models.words(3)}, less=0.4)

    def test_dropout(self):
        self.equal(lambda: models.GPT(dropout=0.2), models.words, less=0.4)

    def test_tied_embeddings(self):
        self.equal(lambda: models.GPT(tied=True), models.words, exact=False)

    def test_shared_block(self):
        self.equal(models.OneBlock, models.words, exact=False)

    def test_encoder_decoder(self):
        self.equal(models.EncoderDecoder, models.words)

    def test_batch_norm(self):
        self.equal(models.ConvNet, models.pixels)

    def test_batch_norm_cumulative(self):
        self.equal(lambda: models.ConvNet(lambda width: nn.BatchNorm2d(width, momentum=None)), models.pixels)

    def test_batch_norm_partly_frozen(self):
        self.equal(lambda: models.ConvNet(frozen=True), models.pixels)

    def test_instance_norm(self):
        self.equal(lambda: models.ConvNet(lambda width: nn.InstanceNorm2d(width, affine=True, track_running_stats=True)), models.pixels)

    def test_own_batch_norm(self):
        class Own(nn.BatchNorm2d):
            """Its output depends on its statistics."""

            def forward(self, x):
                y = super().forward(x)
                return y + self.running_mean.detach()[None, :, None, None]

        self.equal(lambda: models.ConvNet(Own), models.pixels)

    def test_batch_norm_accumulation(self):
        self.equal(models.ConvNet, models.pixels, accumulate=3)

    def test_accumulation(self):
        self.equal(lambda: models.GPT(dropout=0.1), models.words, accumulate=3)

    def test_stages(self):
        self.equal(models.Swin, models.patches)

    def test_heads(self):
        self.equal(lambda: models.GPT(block=models.HeadBlock), models.words)

    def test_columns(self):
        self.equal(models.Columns, models.patches)

    def test_attributes(self):
        self.equal(models.UNet, models.pixels, less=0.9)

    def test_list_that_grows(self):
        self.equal(models.Dense, models.pixels, less=0.9)

    def test_input_that_is_written_to(self):
        self.equal(lambda: models.ConvNet(block=models.PreActivation), models.pixels, less=0.9)

    def test_state(self):
        turned = self.equal(lambda: models.GPT(block=models.Stateful, dropout=0.1), models.words)
        for block in turned.model.transformer.h:
            self.assertEqual((block.calls, block.history, block.late), (3, [1, 2, 3], 3.0))

    def test_state_that_changes_later(self):
        turned = self.equal(lambda: models.GPT(block=models.Later), models.words, steps=6)
        self.assertEqual([(b.used, list(b.recent), b.warm) for b in turned.model.transformer.h], [(6, [4, 5, 6], True)] * 4)

    def test_numbers_that_change_later(self):
        turned = self.equal(lambda: models.GPT(block=models.Numbered), models.words, steps=7)
        self.assertEqual([(b.used, b.late, b.meter.sum) for b in turned.model.transformer.h], [(7, 3, 3)] * 4)
        self.assertEqual((models.Numbered.shared, models.NUMBER, models.LATE["factor"]), (12, 12, 12))

    def test_evaluation_between(self):
        def evaluate(root):
            root.eval()
            with torch.no_grad():
                self.assertFalse(root(models.words(99))[0].requires_grad)
            root.train()

        self.equal(lambda: models.GPT(dropout=0.1), models.words, between=evaluate)

    def test_frozen_embedding(self):
        def make():
            model = models.GPT()
            model.transformer.wte.weight.requires_grad_(False)
            return model

        self.equal(make, models.words)

    def test_frozen_blocks(self):
        def make():
            model = models.GPT()
            for p in model.transformer.parameters():
                p.requires_grad_(False)
            return model

        untouched, turned = Training(make, models.words), Training(make, models.words, turn=FULL)
        compare(self, turned, untouched)
        self.assertEqual(turned.saved, untouched.saved)

    def test_mode_changed_before_backward(self):
        for make, batch in ((lambda: models.ConvNet(frozen=True), models.pixels), (lambda: models.GPT(dropout=0.2), models.words)):
            results = []
            for turn in ({}, FULL):
                torch.manual_seed(0)
                model = make()
                model.train()
                self.assertEqual(list(rungs().apply(model, turn)["applied"]), list(turn))
                loss = loss_of(model(batch(0)), 0)
                model.eval()
                loss.backward()
                self.assertFalse(any(m.training for m in model.modules()))
                results.append([p.grad for p in model.parameters()] + list(model.buffers()))
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(*results)))

    def test_gradient_of_a_gradient(self):
        """A penalty on gradients runs the backward pass of a backward pass."""
        results = []
        for turn in (None, FULL):
            torch.manual_seed(0)
            model = models.Swin()
            model.train()
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
                if isinstance(module, models.Attention):
                    module.dropout = 0.0
            if turn:
                rungs().apply(model, turn)
            x = models.patches(0).requires_grad_()
            gradient, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
            gradient.square().sum().backward()
            results.append([p.grad for p in model.parameters()])
        for a, b in zip(*results):
            self.assertTrue((a - b).norm() <= 1e-6 * b.norm().clamp(min=1e-6))
