"""The optimizer's first step runs out of memory: it is done again, or the job's own error goes up."""
import sys
import traceback
import unittest

import torch
from torch import nn

from harness import part, rungs, some

ALLOCATING = (
    "zeros_like", "ones_like", "empty_like", "full_like", "zeros", "full", "clone", "_foreach_sqrt", "_foreach_add", "_foreach_mul", "_foreach_div", "_foreach_neg",
    "_foreach_mul", "_foreach_sub", "_foreach_maximum", "_foreach_pow",
)
PLAIN = {name: getattr(torch, name) for name in ALLOCATING if hasattr(torch, name)}


class Falls:
    """Runs out of memory at the calls of these numbers, of PyTorch's functions that allocate."""

    def __init__(self, *at):
        self.at, self.n, self.hits = at, 0, 0

    def __enter__(self):
        for name, plain in PLAIN.items():
            setattr(torch, name, self.counting(plain))
        return self

    def __exit__(self, *exception):
        for name, plain in PLAIN.items():
            setattr(torch, name, plain)

    def counting(self, plain):
        def call(*args, **kwargs):
            self.n += 1
            if self.n in self.at:
                self.hits += 1
                torch.empty(1 << 60, dtype=torch.uint8)
            return plain(*args, **kwargs)

        return call


class Optimizers(unittest.TestCase):
    def setUp(self):
        rungs()
        self.part, self.repeats, self.process = part("optimizerstep"), part("repeats"), part("process")
        self.order(True)
        self.kinds = {}
        part("garbage").collect = lambda: None  # it takes longest

    def order(self, permitted, world=0):
        self.process.state["orders"] = {"hooks": True, "in_place": {"rungs": [], "optimizer": permitted}}
        self.process.world = lambda: world
        self.process.told.clear()
        self.repeats.entries.clear()

    def tearDown(self):
        for kind, step in self.kinds.items():
            kind.step = step

    def train(self, kind, at=(), guarded=True, steps=3, closure=False, scaler=False, resume=0, **words):
        """Gives the parameters and states that some steps leave, and how often memory ran out."""
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
        groups = [{"params": list(net[0].parameters())}, {"params": list(net[1].parameters()), "lr": 1e-3}]
        optimizer = kind(groups, lr=1e-2, **words)
        self.kinds.setdefault(kind, kind.step)
        if guarded:
            self.part.wrap(kind)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        scale = torch.cuda.amp.GradScaler(enabled=False) if scaler else None
        for step in range(resume):
            self.backward(net, step)
            optimizer.step()
        falls, self.first = Falls(*at), 0
        for step in range(steps):
            loss = self.backward(net, 9 + step)
            with falls:
                if closure:
                    optimizer.step(lambda: loss)
                elif scaler:
                    scale.step(optimizer)
                else:
                    optimizer.step()
            self.first = self.first or falls.n
            schedule.step()
        kept = [p.detach() for p in net.parameters()] + [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
        self.foreach = [group.get("foreach") for group in optimizer.param_groups]
        return kept, falls.hits

    def backward(self, net, step):
        net.zero_grad()
        loss = net(torch.randn(4, 5, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        return loss

    def known(self):
        for name in part("states").KINDS:
            kind = getattr(torch.optim, name, None)
            if kind is not None:
                for foreach in (True, False):
                    words = {"foreach": foreach, "momentum": 0.9} if name in ("SGD", "RMSprop") else {"foreach": foreach}
                    yield kind, words
                    if name != "Rprop":
                        yield kind, dict(words, weight_decay=0.1)

    def same(self, one, other, exact):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertTrue(torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-5, atol=1e-7), "%s is not %s" % (a, b))

    def test_each_allocation_of_each_optimizer(self):
        rescued, known = {}, some(self.known(), 3)
        for kind, words in known:
            want, _ = self.train(kind, guarded=False, **words)
            self.train(kind, **words)
            for at in range(1, self.first + 1):
                self.order(True)
                with self.subTest(kind=kind.__name__, at=at, **words):
                    try:
                        found, hits = self.train(kind, at=(at,), **words)
                    except RuntimeError as e:
                        self.assertIn("can't allocate memory", str(e))
                        self.assertNotIn("in_place", self.process.told)
                        continue
                    self.assertEqual(hits, 1)
                    # States were made by the failed step: exactly those that a first step makes are there.
                    self.same(found, want, exact=True)
                    self.assertEqual(self.foreach, [words["foreach"]] * 2)
                    entry, = self.process.told["in_place"]
                    self.assertEqual((entry["phase"], entry["rung"], entry["times"], entry["requested_bytes"]), ("optimizer", "", 1, 1 << 60))
                    rescued[kind.__name__] = rescued.get(kind.__name__, 0) + 1
        # Of these, newer ones make their states when they are made, or by a method.
        self.assertEqual(set(rescued) | {"Adagrad", "Adafactor"}, {kind.__name__ for kind, _ in known} | {"Adagrad", "Adafactor"})

    def refused(self, reason, kind=torch.optim.AdamW, at=(3,), **words):
        with self.assertRaisesRegex(RuntimeError, "can't allocate memory"):
            self.train(kind, at=at, **words)
        self.assertNotIn("in_place", self.process.told)
        told = self.process.told.get("in_place_refused") or {}
        self.assertIn(reason, told.get("reason", ""))

    def test_without_permission_the_step_stays_as_it_is(self):
        self.order(False)
        self.train(torch.optim.AdamW)  # the hook counts steps from the first optimizer on
        step = torch.optim.AdamW.step
        self.refused("", at=(3,))
        self.assertIs(torch.optim.AdamW.step, step)

    def test_second_failure_goes_up(self):
        frames = []
        try:
            self.train(torch.optim.AdamW, at=(3, *range(7, 99)))
        except RuntimeError as e:
            frames = [frame.name for frame in traceback.extract_tb(e.__traceback__)]
        self.assertIn("call", frames)  # where the first one was raised
        self.assertIn("can't allocate memory", self.process.told["in_place_refused"]["reason"])

    def test_written_parameters(self):
        # AdamW decays the parameters before it allocates the roots of all.
        for at in range(1, 60):
            self.order(True)
            try:
                self.train(torch.optim.AdamW, at=(at,), foreach=True, weight_decay=0.1)
            except RuntimeError:
                if "parameter was written" in self.process.told.get("in_place_refused", {}).get("reason", ""):
                    return
        self.fail("no failure came after a parameter was written")

    def test_states_from_before(self):
        """In a run that goes on, a step that has counted cannot be done again; one that has not can."""
        want, _ = self.train(torch.optim.Adam, guarded=False, resume=2, foreach=False)
        reasons = set()
        for at in range(1, 60):
            self.order(True)
            try:
                found, hits = self.train(torch.optim.Adam, at=(at,), resume=2, foreach=True)
            except RuntimeError:
                reasons.add((self.process.told.get("in_place_refused") or {}).get("reason"))
                continue
            if not hits:
                break
            self.same(found, want, exact=True)
        self.assertLessEqual(reasons, {"memory ran out in the midst of the arithmetic of a step", "memory ran out outside of the optimizer's own code"})

    def test_closure(self):
        want, _ = self.train(torch.optim.AdamW, guarded=False)
        found, hits = self.train(torch.optim.AdamW, at=(3,), closure=True)
        self.assertEqual(hits, 1)
        self.same(found, want, exact=True)

    def test_gradient_scaler(self):
        want, _ = self.train(torch.optim.AdamW, guarded=False, foreach=False)
        found, hits = self.train(torch.optim.AdamW, at=(3,), scaler=True)
        self.assertEqual(hits, 1)
        self.same(found, want, exact=True)

    def test_unknown_optimizer(self):
        class Own(torch.optim.AdamW):
            pass

        self.refused("", kind=Own)
        self.assertNotIn("in_place_refused", self.process.told)

    def test_job_that_handles_the_error(self):
        try:
            self.train(torch.optim.AdamW, at=(3,))
        except RuntimeError as e:
            if "out of memory" in str(e):
                raise
        self.assertIn("the job handles the error itself (optimizer.py:", self.process.told["in_place_refused"]["reason"])

    def test_several_ranks_keep_their_way_of_stepping(self):
        """Replicas would drift apart by rounding: the same step is done again."""
        self.order(True, world=2)
        for kind in (torch.optim.NAdam, torch.optim.AdamW):  # of which NAdam differs in the last digit
            want, _ = self.train(kind, guarded=False, foreach=True)
            found, hits = self.train(kind, at=(3,), foreach=True)
            self.assertEqual(hits, 1)
            self.same(found, want, exact=True)

    def test_hooks_of_the_job_run_once(self):
        module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes its own name for it
        if not hasattr(module, "register_optimizer_step_pre_hook"):
            self.skipTest("this PyTorch has no hooks on steps")
        for name in ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"):
            calls = []
            handle = getattr(module, name)(lambda *args: calls.append(1))
            try:
                self.train(torch.optim.AdamW, at=(3,))
            finally:
                handle.remove()
            self.assertEqual(len(calls), 3)

    def test_short_of_memory_before_the_first_step(self):
        """AdamW writes to the parameters before its largest tensors: it is not tried."""
        want, _ = self.train(torch.optim.AdamW, guarded=False, foreach=False)
        part("optimizers").default = lambda optimizer, group: True
        size = 4 * (5 * 7 + 7 + 7 * 3 + 3)
        for free, short in ((3 * size - 1, True), (3 * size, False), (None, False)):
            self.order(True)
            part("room").free = lambda device: free
            found, _ = self.train(torch.optim.AdamW)
            self.same(found, want, exact=True)
            self.assertEqual("in_place" in self.process.told, short)
            self.assertEqual(len(part("states").offloaded), 0)  # it is gone
