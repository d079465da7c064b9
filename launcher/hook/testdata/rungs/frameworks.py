"""Models of transformers, diffusers and timm, where they are installed."""
import pickle
import unittest

import torch
from torch import nn

import models
from harness import Training, compare, rungs

FULL = {"activation_checkpointing": "full"}
SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, vocab_size=models.WORDS)


class Frameworks(unittest.TestCase):
    def equal(self, make, batch, exact=True, less=0.75, turn=FULL, **more):
        untouched, turned = Training(make, batch, **more), Training(make, batch, turn=turn, **more)
        self.assertEqual(list(turned.result["applied"]), list(turn), turned.result)
        compare(self, turned, untouched, exact)
        self.assertLess(turned.saved[0], less * untouched.saved[0])
        return turned

    def transformers(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("there are no transformers")
        transformers.logging.set_verbosity_error()
        return transformers

    def timm(self):
        try:
            import timm
        except ImportError:
            self.skipTest("there is no timm")
        return timm

    def test_gpt2(self):
        t = self.transformers()
        config = t.GPT2Config(n_embd=32, n_layer=4, n_head=4, vocab_size=models.WORDS, n_positions=64)
        turned = self.equal(lambda: t.GPT2LMHeadModel(config), models.words, exact=False)
        self.assertEqual(type(pickle.loads(pickle.dumps(turned.model))), t.GPT2LMHeadModel)

    def test_llama_in_a_model_of_ones_own(self):
        t = self.transformers()

        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.language = t.LlamaModel(t.LlamaConfig(max_position_embeddings=64, **SMALL))
                self.tower = nn.ModuleList([models.Block(0.1) for _ in range(3)])

            def forward(self, idx):
                x = self.language(input_ids=idx).last_hidden_state
                for block in self.tower:
                    x = block(x)
                return x

        self.equal(Own, models.words, less=0.3)

    def test_t5(self):
        t = self.transformers()
        config = t.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, vocab_size=models.WORDS, decoder_start_token_id=0)
        self.equal(lambda: t.T5ForConditionalGeneration(config), models.words, exact=False, kwargs={"labels": models.words(9)})

    def test_swin(self):
        t = self.transformers()
        config = t.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)
        self.equal(lambda: t.SwinModel(config), lambda step: torch.nn.functional.interpolate(models.pixels(step), 32))

    def test_on_already(self):
        t = self.transformers()
        model = t.LlamaForCausalLM(t.LlamaConfig(**SMALL)).train()
        model.gradient_checkpointing_enable()
        self.assertEqual(rungs().survey(model)["activation_checkpointing"], "it is on already")

    def test_sdpa(self):
        t = self.transformers()

        def make(**words):
            config = t.LlamaConfig(max_position_embeddings=64, **SMALL, **words)
            config._attn_implementation = "eager"
            return t.LlamaForCausalLM(config)

        reason = rungs().survey(make())["attention"]
        if reason:
            self.assertTrue("chooses" in reason or "no scaled dot-product" in reason or "no other attention" in reason, reason)
            self.skipTest(reason)
        untouched, turned = Training(make, models.words), Training(make, models.words, turn={"attention": "sdpa"})
        self.assertEqual(turned.result["applied"], {"attention": ["eager", "sdpa"]})
        self.assertEqual(turned.model.config._attn_implementation, "sdpa")
        self.assertLess(turned.saved[0], untouched.saved[0])
        for a, b in zip(turned.losses, untouched.losses):
            self.assertLess(abs(a - b), 1e-5 * abs(b))
        self.assertEqual(rungs().survey(turned.model)["attention"], "it is sdpa already")
        asked = Training(make, models.words, turn={"attention": "sdpa"}, kwargs={"output_attentions": True}, steps=1)
        self.assertEqual(asked.result["refused"], {"attention": "the script requests the attention's weights"})

    def test_timm(self):
        timm = self.timm()
        self.equal(lambda: timm.create_model("resnet26", num_classes=7), lambda step: torch.nn.functional.interpolate(models.pixels(step), 32))
        self.equal(
            lambda: timm.create_model("vit_tiny_patch16_224", num_classes=7, img_size=32, patch_size=8, depth=4, drop_path_rate=0.1),
            lambda step: torch.nn.functional.interpolate(models.pixels(step), 32),
        )

    def test_diffusers(self):
        try:
            import diffusers
        except ImportError:
            self.skipTest("there are no diffusers")
        def make():
            return diffusers.UNet2DModel(
                    sample_size=16, in_channels=3, out_channels=3, block_out_channels=(16, 32), layers_per_block=2, norm_num_groups=4,
                    attention_head_dim=4, down_block_types=("AttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "AttnUpBlock2D"))
        self.equal(make, models.pixels, kwargs={"timestep": 5, "return_dict": False})
