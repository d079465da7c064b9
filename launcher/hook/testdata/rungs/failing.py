"""Where something of the hooks fails, the job goes on; where the job fails, it fails as it would."""
import traceback
import unittest

import torch
from torch.utils import checkpoint as module

import models
from harness import AtFirstCall, Training, compare, loss_of, part, rungs

FULL = {"activation_checkpointing": "full"}


class Calls:
    """Counts calls. What an object of a library counts is not restored after a second run."""

    __module__, n = "torch.testing", 0

    def next(self):
        self.n += 1
        return self.n


class Failing(unittest.TestCase):
    def test_turn(self):
        """What fails while it is turned is undone, and the other rungs are turned."""
        room = rungs()
        forward = models.Block.forward
        part("recompute").Block = None  # cannot be called
        model = models.GPT()
        result = room.apply(model, dict(FULL, precision="bf16"))
        self.assertEqual(result["failed"], {"activation_checkpointing": "TypeError: 'NoneType' object is not callable"})
        self.assertEqual(list(result["applied"]), ["precision"])
        self.assertIs(models.Block.forward, forward)

    def test_survey(self):
        room = rungs()
        part("exclusions").reason = lambda root: 1 / 0
        self.assertEqual(set(room.survey(models.GPT()).values()) - {"this PyTorch has no scaled dot-product attention", "no call of the model was seen", "the model trains on the CPU"},
                         {"the model could not be looked at: ZeroDivisionError: division by zero"})
        self.assertEqual(room.apply(models.GPT(), FULL)["applied"], {})

    def test_part_that_is_not_whole(self):
        room = rungs()
        del part("checkpointing").VALUES
        self.assertIn("activation_checkpointing", room.apply(models.GPT(), FULL)["failed"])

    def with_checkpoint(self, function):
        """Trains with another torch.utils.checkpoint, beside an untouched training."""
        own, told = module.checkpoint, []
        untouched = Training(models.GPT, models.words)
        module.checkpoint = function(own)
        try:
            turned = Training(models.GPT, models.words, turn=FULL, told=told)
        finally:
            module.checkpoint = own
        self.assertEqual(list(turned.result["applied"]), ["activation_checkpointing"])
        compare(self, turned, untouched)
        return told

    def test_before_the_forward(self):
        def fails(own):
            def checkpoint(function, *args, use_reentrant=None):
                raise RuntimeError("not here")

            return checkpoint

        self.assertEqual(self.with_checkpoint(fails), [("activation_checkpointing", "RuntimeError: not here")])

    def test_after_the_forward(self):
        """The forward is not run again: what it gave is used."""
        runs = []

        def fails(own):
            def checkpoint(function, *args, use_reentrant=None):
                own(function, *args, use_reentrant=use_reentrant)
                runs.append(1)
                raise RuntimeError("too late")

            return checkpoint

        self.assertEqual(self.with_checkpoint(fails), [("activation_checkpointing", "RuntimeError: too late")])
        self.assertEqual(len(runs), 4)  # once a block: then it is given up

    def test_exception_of_the_job(self):
        """It comes out as it went in, its forward having run once, and training goes on."""
        calls = Calls()

        class Bad(models.Block):
            def forward(self, x):
                if calls.next() == 3:
                    raise ValueError("the job's own")
                return super().forward(x)

        torch.manual_seed(0)
        model, told = models.GPT(block=Bad), []
        AtFirstCall(model, dict(FULL, precision="bf16"), lambda *a: told.append(a))
        try:
            model(models.words(0))
        except ValueError as e:
            raised = e
        self.assertEqual((calls.next(), str(raised)), (4, "the job's own"))
        self.assertEqual((raised.__cause__, raised.__context__), (None, None))
        self.assertEqual(traceback.extract_tb(raised.__traceback__)[-1].filename, __file__)
        if not torch.__version__.startswith(("1.", "2.0")):  # there it ends as the next call begins
            self.assertFalse(autocast_is_on())
        loss_of(model(models.words(0)), 0).backward()
        self.assertEqual(calls.next() - 1, 4 + 4 + 4)
        self.assertFalse(autocast_is_on())
        self.assertEqual(told, [])

    def test_exception_of_the_second_run(self):
        calls = Calls()

        class Bad(models.Block):
            def forward(self, x):
                if calls.next() == 6:
                    raise MemoryError("in the backward pass")
                return super().forward(x)

        model = models.GPT(block=Bad)
        rungs().apply(model, FULL)
        loss = loss_of(model(models.words(0)), 0)
        with self.assertRaisesRegex((MemoryError, RuntimeError), "in the backward pass"):
            loss.backward()
        loss_of(model(models.words(0)), 0).backward()

    def test_told_once_and_whatever_comes_of_it(self):
        def raises(knob, reason):
            raise KeyError(knob)

        model = models.GPT()
        rungs().apply(model, FULL, raises)
        own, module.checkpoint = module.checkpoint, None
        try:
            loss_of(model(models.words(0)), 0).backward()
        finally:
            module.checkpoint = own


def autocast_is_on():
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:
        return torch.is_autocast_cpu_enabled()
