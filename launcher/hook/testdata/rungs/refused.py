"""What no rung is turned on, and the words that say so."""
import unittest

import torch
from torch import nn

import models
from harness import Training, compare, rungs

KNOBS = {"activation_checkpointing": "full", "offload_activations": "cpu", "attention": "sdpa", "precision": "bf16"}


class Refused(unittest.TestCase):
    def refused(self, model, **words):
        """Holds both survey and apply to their words, and the model to what it was."""
        before = {kind: kind.__dict__.get("forward") for kind in {type(m) for m in model.modules()}}
        found = rungs().survey(model)
        for knob, word in words.items():
            self.assertIn(word, found[knob])
        turn = {knob: KNOBS[knob] for knob in words}
        result = rungs().apply(model, turn)
        self.assertEqual(result, {"applied": {}, "refused": {knob: found[knob] for knob in words}, "failed": {}})
        for kind, forward in before.items():
            self.assertIs(kind.__dict__.get("forward"), forward)

    def everything(self, model, word):
        self.refused(model, activation_checkpointing=word, offload_activations=word, precision=word)

    def test_compiled(self):
        try:
            model = torch.compile(models.GPT())
        except (AttributeError, RuntimeError) as e:
            self.skipTest("this PyTorch cannot compile: %s" % e)
        self.everything(model, "the model is compiled by torch.compile")

    def test_compiled_in_place(self):
        if not hasattr(nn.Module, "compile"):
            self.skipTest("this PyTorch cannot compile in place")
        model = models.GPT()
        model.compile()
        self.everything(model, "the model is compiled by torch.compile")

    def test_compiled_blocks(self):
        if not hasattr(nn.Module, "compile"):
            self.skipTest("this PyTorch cannot compile in place")
        model = models.GPT()
        for block in model.transformer.h:
            block.compile()
        self.everything(model, "transformer.h.0 is compiled by torch.compile")

    def test_scripted(self):
        self.everything(torch.jit.script(models.ConvNet()), "the model is a TorchScript module")

    def test_scripted_blocks(self):
        model = models.ConvNet()
        model.layer1[0] = torch.jit.script(model.layer1[0])
        self.everything(model, "layer1.0 is a TorchScript module")

    def test_traced(self):
        self.everything(torch.jit.trace(models.Columns().eval(), models.patches(0)), "the model is a TorchScript module")

    def test_quantised(self):
        model = torch.quantization.quantize_dynamic(models.GPT(), {nn.Linear}, dtype=torch.qint8)
        self.everything(model, "is quantised (Linear)")

    def test_quantised_weights(self):
        class Params4bit(nn.Parameter):
            """As bitsandbytes has it."""

        model = models.GPT()
        model.head.weight = Params4bit(model.head.weight.detach())
        self.everything(model, "the model is quantised (Params4bit)")

    def test_replicas(self):
        self.everything(nn.DataParallel(models.GPT()), "DataParallel makes new replicas")

    def test_zero_3(self):
        model = models.GPT()
        model.head.weight.ds_id = 0
        self.everything(model, "DeepSpeed ZeRO-3 gathers")

    def test_graphed(self):
        def make_graphed_autograd_function():
            def new_fwd(*args):
                return args[0]

            return new_fwd

        model = models.GPT()
        model.transformer.h[1].forward = make_graphed_autograd_function()
        self.everything(model, "transformer.h.1 runs as CUDA graphs")

    def test_forward_of_an_instance(self):
        model = models.GPT()
        model.transformer.h[1].forward = lambda x: x
        self.refused(model, activation_checkpointing="Block.forward was replaced on the instance")
        model = models.GPT()
        model.forward = lambda x: x
        self.refused(model, precision="GPT.forward was replaced on the instance")

    def test_no_blocks(self):
        self.refused(models.Plain(), activation_checkpointing="the model has no repeated blocks and no method for checkpointing")

    def test_on_already(self):
        model = models.GPT()
        room = rungs()
        room.apply(model, {"activation_checkpointing": "full", "precision": "bf16"})
        found = room.survey(model)
        self.assertEqual((found["activation_checkpointing"], found["precision"]), ("it is on already",) * 2)
        flagged = models.GPT()
        flagged.transformer.h[0].use_checkpoint = True
        self.refused(flagged, activation_checkpointing="it is on already")
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        wrapped = models.GPT()
        wrapped.transformer.h[0] = checkpoint_wrapper(wrapped.transformer.h[0])
        self.refused(wrapped, activation_checkpointing="it is on already")

    def test_on_the_cpu(self):
        self.refused(models.GPT(), offload_activations="the model trains on the CPU")

    def test_weights_not_fp32(self):
        self.refused(models.GPT().to(torch.bfloat16), precision="the weights are not all fp32 but bfloat16")

    def test_under_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.refused(models.GPT(), precision="the script runs under autocast already")

    def test_attention(self):
        known = hasattr(nn.functional, "scaled_dot_product_attention")
        self.refused(models.GPT(), attention="the model's class offers no other" if known else "this PyTorch has no scaled")

    def test_values(self):
        result = rungs().apply(models.GPT(), {"precision": "fp16", "activation_checkpointing": "none", "micro_batch_size": 8})
        self.assertEqual(sorted(result["refused"]), ["activation_checkpointing", "micro_batch_size", "precision"])
        self.assertEqual((result["applied"], result["failed"]), ({}, {}))

    def test_nothing_asked(self):
        forward = models.GPT.forward
        self.assertEqual(rungs().apply(models.GPT(), {}), {"applied": {}, "refused": {}, "failed": {}})
        self.assertIs(models.GPT.forward, forward)

    def test_cache(self):
        """A block that is given a cache runs as it would, and that is told."""

        class Cache:
            def __init__(self):
                self.seen = 0

            def get_seq_length(self):
                return self.seen

        class Cached(models.Block):
            def forward(self, x, cache):
                cache.seen += 1
                return super().forward(x)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.h = nn.Linear(8, models.WIDTH), nn.ModuleList([Cached() for _ in range(3)])

            def forward(self, x):
                x, self.cache = self.embed(x), Cache()
                for block in self.h:
                    x = block(x, self.cache)
                return x

        told = []
        turned = Training(Model, models.patches, turn={"activation_checkpointing": "full"}, told=told)
        compare(self, turned, Training(Model, models.patches))
        self.assertEqual(turned.model.cache.seen, 3)
        self.assertEqual(told, [("activation_checkpointing", "Cached is given a cache, which its second run would write to again")])
