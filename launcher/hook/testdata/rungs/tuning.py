"""How much of a remedy is on after a step was done again: as little as fits, and the fastest of the exact ways."""
import random
import unittest

import harness
import models
import repeated
import torch
from torch import nn

import loops

GIB = 1 << 30


class Decisions(unittest.TestCase):
    """By the figures of each step: which state the next one has."""

    def setUp(self):
        harness.rungs()
        self.part = harness.part("tuner")

    def blocks(self, n=10, each=1.0):
        """Blocks that hold so many GiB each, and take a 30th of a step to recompute."""
        return self.part.Option("blocks", [(int((n - k) * each * GIB), k / 30) for k in range(n + 1)])

    def run_of(self, tuner, room, holds=1.0, base=2.0, steps=40, fails=(), seconds=None, shapes=("a",), short=()):
        """Make steps; each needs base and what its state holds, and takes what seconds gives. Return the states."""
        seen = []
        for i in range(steps):
            state = tuner.state
            seen.append(state)
            need = base * GIB + holds * tuner.held(state)
            if need > room * GIB or state in fails:
                least = min(tuner.states(), key=tuner.held)
                tuner.fails(least)
                continue
            took = seconds(state) if seconds else tuner.cost(state)
            tuner.step(shapes[i % len(shapes)], (8, 8), took, need, room * GIB, state in short)
        return seen

    def kept(self, tuner):
        rows = [row for row in tuner.rows if row["kept"]]
        self.assertEqual(len(rows), 1, tuner.rows)
        return rows[0]["state"]

    def test_fewest_blocks_that_fit(self):
        for room, want in ((3.0, 10), (4.2, 8), (5.0, 8), (8.0, 5), (11.0, 2), (12.0, 1), (12.4, 0), (100.0, 0)):
            tuner = self.part.Tuner([self.blocks()], (10,))
            seen = self.run_of(tuner, room)
            self.assertEqual(self.kept(tuner), {"blocks": want}, room)
            self.assertEqual(seen[:2], [(10,), (want,)], room)  # after the first full step
            self.assertTrue(tuner.over)

    def test_measured_peak_corrects_the_number(self):
        """Blocks hold more, or less, than was measured in the repeat."""
        for holds in (.5, .8, 1.25, 1.5, 2.0):
            for room in (5.0, 9.0, 14.0):
                tuner = self.part.Tuner([self.blocks()], (10,))
                seen = self.run_of(tuner, room, holds)
                fewest = next(k for k in range(11) if 2 + holds * (10 - k) <= .97 * room)
                self.assertLessEqual(abs(self.kept(tuner)["blocks"] - fewest), 1, (holds, room, seen))
                failed = [row for row in tuner.rows if row["outcome"]]
                self.assertLessEqual(len(failed), 1, (holds, room, seen))
                for row in failed:
                    self.assertEqual(seen.count((row["state"]["blocks"],)), 1)  # it is not tried again

    def test_state_that_failed_is_not_tried_again(self):
        tuner = self.part.Tuner([self.blocks()], (10,))
        seen = self.run_of(tuner, 8.0, fails={(5,)})
        self.assertEqual(seen[:5], [(10,), (5,), (10,), (8,), (6,)])
        self.assertEqual(self.kept(tuner), {"blocks": 6})
        self.assertEqual([row["outcome"] for row in tuner.rows], ["", "out of memory", "", ""])

    def loss(self):
        return self.part.Option("loss", [(3 * GIB, 0.0), (0, .3)], False)

    def test_loss_in_parts_and_blocks(self):
        """By how much of a step the loss in parts really takes."""
        for slower, room, want in ((.04, 12.0, (1, 1)), (.5, 12.0, (4, 0)), (.04, 20.0, (0, 0))):
            tuner = self.part.Tuner([self.blocks(), self.loss()], (10, 1))
            self.run_of(tuner, room, seconds=lambda s, slower=slower: 1 + s[0] / 30 + slower * s[1])
            self.assertEqual(self.kept(tuner), {"blocks": want[0], "loss": want[1]})
            self.assertLessEqual(max(row["steps"] for row in tuner.rows if not row["kept"]), 3)

    def test_more_blocks_than_fit_are_not_tried_for_their_time(self):
        """Whatever the clock says: they do more of the same."""
        for seconds in ((1.0, 1.0), (1.0, .99), (1.0, 1.09), (1.0, .5)):
            tuner = self.part.Tuner([self.blocks()], (10,))
            seen = self.run_of(tuner, 8.0, seconds=lambda state, seconds=seconds: seconds[state != (10,)])
            self.assertEqual((set(seen), self.kept(tuner)), ({(10,), (5,)}, {"blocks": 5}), seconds)

    def test_it_ends(self):
        parts = self.part.Option("parts", [(GIB * 8 // n, .3 + .05 * i) for i, n in enumerate((2, 4, 8, 16))], False)
        clock = random.Random(3)
        for n in range(20):
            tuner = self.part.Tuner([self.blocks(), self.loss(), parts], (10, 1, 3))
            self.run_of(tuner, 7.0 + n, seconds=lambda state: clock.random(), steps=100)
            self.assertTrue(tuner.over)
            self.assertLessEqual(tuner.trials, self.part.TRIALS)
            self.kept(tuner)

    def test_share_of_a_short_run(self):
        for steps, tried in ((None, True), (10000, True), (150, True), (149, False), (20, False)):
            tuner = self.part.Tuner([self.blocks(), self.loss()], (10, 1), steps=steps)
            self.run_of(tuner, 12.0, seconds=lambda s: 1 + s[0] / 30 + .5 * s[1])
            self.assertEqual(self.kept(tuner), {"blocks": 4, "loss": 0} if tried else {"blocks": 1, "loss": 1}, steps)

    def test_several_ranks_only_fit(self):
        tuner = self.part.Tuner([self.blocks(), self.loss()], (10, 1), times=False)
        for _ in range(9):
            tuner.step("a", (8, 8), None, 2 * GIB + tuner.held(tuner.state), 12 * GIB)
        self.assertEqual(self.kept(tuner), {"blocks": 1, "loss": 1})

    def test_only_steps_of_one_shape_are_compared(self):
        """Steps of the shape b take a hundred times as long."""
        tuner = self.part.Tuner([self.blocks(), self.loss()], (10, 1))
        for i in range(60):
            shape = "b" if i in (1, 2, 6, 9, 10) else "a"
            seconds = (1 + tuner.state[0] / 30 + .5 * tuner.state[1]) * (100 if shape == "b" else 1)
            tuner.step(shape, (8, 8), seconds, 2 * GIB + tuner.held(tuner.state), 12 * GIB)
        self.assertEqual(self.kept(tuner), {"blocks": 4, "loss": 0})

    def test_steps_that_all_differ_in_shape(self):
        tuner = self.part.Tuner([self.blocks(), self.loss()], (10, 1))
        for i in range(200):
            tuner.step(i, (8, 8), 1.0, 2 * GIB + tuner.held(tuner.state), 12 * GIB)
        self.assertEqual(self.kept(tuner), {"blocks": 1, "loss": 1})

    def test_larger_inputs_begin_anew(self):
        tuner = self.part.Tuner([self.blocks()], (10,))
        self.run_of(tuner, 8.0)
        self.assertTrue(tuner.over)
        tuner.fails((10,))  # inputs are twice as large
        states = []
        for _ in range(9):
            peak = 2 * GIB + tuner.held(tuner.state) * (1 if states else 2)
            states.append(tuner.step("c", (16, 16), 1.0, peak, 8 * GIB))
        self.assertTrue(tuner.over)
        self.assertEqual(states[-1], (8,))  # 2 GiB, and 2 for each block
        self.assertEqual(self.kept(tuner), {"blocks": 8})

    def test_allocator_retries_end(self):
        """States in which the allocator has to retry are left, in three steps."""
        for short in ({(5,)}, {(5,), (6,)}, {(n,) for n in range(10)}):
            tuner = self.part.Tuner([self.blocks()], (10,))
            seen = self.run_of(tuner, 8.0, short=short)
            self.assertLessEqual(sum(s in short for s in seen), 2, seen)
            self.assertNotIn(tuple(self.kept(tuner).values()), short)
        tuner = self.part.Tuner([self.blocks()], (10,))
        self.run_of(tuner, 8.0, short={(n,) for n in range(11)})
        self.assertEqual([row["outcome"] for row in tuner.rows], ["short of memory"])
        self.assertEqual(self.kept(tuner), {"blocks": 10})


class Falling(nn.Module):
    """A model in which memory runs out at the end of a forward."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, *args):
        output = self.net(*args)
        loops.fail("forward")
        return output


class States(repeated.Guarded):
    """Each state of the remedies trains the same."""

    def train(self, make, batch, choose=None, steps=15, fail=None, loss=harness.loss_of):
        """Give what training leaves; choose(guard) decides before each step how much is recomputed."""
        torch.manual_seed(1)
        net = make()
        net.train()
        optimizer, losses = torch.optim.AdamW(net.parameters(), lr=1e-2), []
        guard = self.guard(net) if choose else None
        for step in range(steps):
            if choose:
                choose(guard, step)
            torch.manual_seed(step)
            value = loss(net(batch(step)), step)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(value.item())
        if guard is not None:
            guard.remove()
        return losses, [p.detach().clone() for p in net.parameters()] + [b.clone() for b in net.buffers()]

    def same(self, got, want):
        self.assertEqual(got[0], want[0])
        self.assertTrue(all(map(torch.equal, got[1], want[1])))

    def test_random_sequences_of_states(self):
        """The parameters after 15 steps are those of the untouched run, bit by bit."""
        words = loops.batches(1)[0]
        for n, (make, batch) in enumerate((
            (lambda: models.GPT(dropout=.1), models.words), (lambda: models.GPT(block=models.Numbered), models.words),
            (models.ConvNet, models.pixels), (models.EncoderDecoder, models.words), (models.Swin, models.patches),
            (repeated.Switched, lambda step: words),
        )):
            loops.expect()
            want = self.train(lambda make=make: Falling(make()), batch)
            for seed in range(1, 2):
                self.setUp()
                drawn, numbers = random.Random(10 * n + seed), []

                def choose(guard, step, drawn=drawn, numbers=numbers):
                    remedy, = guard.remedies
                    if step > 3:
                        degrees = remedy.degrees(0)
                        self.assertGreater(len(degrees), 2)
                        number = drawn.randrange(len(degrees))
                        numbers.append(number)
                        remedy.use(number)

                loops.expect(("forward", 3))
                self.same(self.train(lambda make=make: Falling(make()), batch, choose), want)
                self.assertEqual(([e["phase"] for e in self.repeats()], self.refused()), (["forward"], None))
                self.assertGreater(len(set(numbers)), 2)

    def test_number_of_recomputed_blocks(self):
        """Those from the first on are recomputed, in a model's own switch, too."""
        for make in (loops.Net, repeated.Switched):
            self.setUp()
            net = make()
            guard, x = self.guard(net), loops.batches(1)[0]
            loops.expect(("forward", 2))
            net(x).sum().backward()
            remedy, = guard.remedies
            self.assertEqual((len(self.repeats()), len(remedy.degrees(0)), remedy.degree()), (1, 4, 3), self.refused())
            held = [held for held, _ in remedy.degrees(0)]
            self.assertEqual(sorted(held, reverse=True), held)
            for number in (3, 0, 1, 2, 3, 1):
                remedy.use(number)
                loops.expect()
                net(x).sum().backward()
                self.assertEqual(loops.fail.count["forward"], 3 + number)

    def test_number_of_an_earlier_run(self):
        """A run begins with so many blocks as an earlier one needed; where these are too few, all are recomputed."""
        net, x = loops.Net(), loops.batches(1)[0]
        guard = self.guard(net)
        guard.arm({"rung": "checkpointing", "elements": 1, "longest": 1, "parts": 0, "blocks": 2})
        remedy, = guard.remedies
        loops.expect()
        net(x).sum().backward()
        self.assertEqual((loops.fail.count["forward"], remedy.degree(), self.repeats()), (5, 2, []))
        loops.expect(("forward", 3))
        net(x).sum().backward()
        self.assertEqual((len(self.repeats()), remedy.degree(), len(remedy.degrees(0))), (1, 3, 4), self.refused())

    def test_trial_that_runs_out_of_memory_costs_one_step(self):
        """The step is done again with all blocks recomputed, and that state is not tried again."""
        tuning, session = harness.part("tuning"), harness.part("session")
        room, meters = harness.part("room"), harness.part("meters")
        self.addCleanup(setattr, room, "free", room.free)
        self.addCleanup(setattr, meters, "of", meters.of)
        numbers, fails = [], []

        class Meter:
            """Each block that is not recomputed holds so many bytes more."""

            resets = False

            def read(self):
                return GIB, 0

            def most(self):
                return GIB + (3 - remedy.degree()) * block

            def begin(self):
                return True

            def now(self):
                return -1, 0, 0, 0, 0

        net, x = loops.Net(), loops.batches(1)[0]
        guard = self.guard(net)
        remedy, = guard.remedies
        guard.follows = follows = tuning.Tuning(guard)
        block, room.free, meters.of = 0, lambda device: 2 * GIB, lambda device: Meter()
        loops.expect(("forward", 2))
        for step in range(12):
            if remedy.degree() == 1 and not fails:
                fails.append(step)
                loops.expect(("forward", 3))
            net(x).sum().backward()
            numbers.append(remedy.degree())
            if step == 0:
                block = remedy.degrees(0)[1][0] - remedy.degrees(0)[2][0]
                room.free = lambda device: 2 * GIB
                follows.tuner = None
            session.current.steps = step + 1
            for each in list(session.current.when_stepped):
                each(step + 1)
            if step == 1:
                self.assertEqual(remedy.degree(), 0)
                remedy.use(1)
                follows.tuner.go((1,))
        entry = self.repeats()[0]
        self.assertEqual((entry["times"], numbers[2]), (2, 3), (numbers, self.repeats()))
        self.assertEqual([row["recomputed"] for row in entry["trials"] if row["outcome"] == "out of memory"], [1])
        self.assertNotIn(1, numbers[3:])
        self.assertNotIn(0, numbers[3:])
        self.assertIsNone(guard.tuning)  # it has ended

    def test_allocator_retries_are_ended_or_explained(self):
        """The cache is emptied once; then more blocks are recomputed, or the report says why that is impossible."""
        process, net, x = self.parts["process"], loops.Net(), loops.batches(1)[0]
        for fits, want in ((True, [0, 0, 3, 3]), (False, [3, 3, 3, 3])):
            self.setUp()
            process.told.pop("pressure", None)
            guard, emptied, seen = self.guard(net), [], []
            remedy, = guard.remedies
            follows = guard.follows = harness.part("tuning").Tuning(guard)
            self.addCleanup(setattr, torch.cuda, "empty_cache", torch.cuda.empty_cache)
            torch.cuda.empty_cache = lambda emptied=emptied: emptied.append(1)
            loops.expect(("forward", 2))
            net(x).sum().backward()
            for retries in (0, 3, 2, 2):
                if guard.tuning is not None:
                    follows.ended(("a",), (8, 8), 1.0, GIB, GIB, 9 * GIB if fits else 0, retries)
                seen.append(remedy.degree())
            guard.remove()
            self.parts["forwards"].TABLES.clear()
            if fits:
                self.assertEqual((seen[:2], emptied, process.told.get("pressure")), (want[:2], [1], None))
                self.assertGreater(seen[2], 0)
            else:
                self.assertEqual((seen, emptied), (want, [1]))
                self.assertIn("is done already", process.told["pressure"]["why"])

    def test_nothing_changes_without_permission(self):
        net, x = loops.Net(), loops.batches(1)[0]
        guard, session = self.guard(net), harness.part("session")
        loops.expect(("forward", 2))
        for step in range(8):
            net(x).sum().backward()
            for each in list(session.current.when_stepped):
                each(step + 1)
        remedy, = guard.remedies
        self.assertEqual((remedy.degree(), remedy.number, guard.tuning), (3, None, None))
        self.assertNotIn("trials", self.repeats()[0])


class Others(repeated.Guarded):
    """The degrees of remedies that act on no blocks."""

    rungs = ("split",)

    def test_parts_of_the_batch(self):
        net = loops.Net()
        remedy, = self.guard(net).remedies
        self.assertEqual(remedy.degrees(8 * GIB), [])  # it is off
        remedy.arm(1, 1, 4)
        degrees = remedy.degrees(2 * GIB)
        self.assertEqual(([held for held, _ in degrees], remedy.degree()), ([4 * GIB, 2 * GIB, GIB], 1))
        self.assertEqual(sorted(cost for _, cost in degrees), [cost for _, cost in degrees])
        for degree, parts in ((0, 2), (2, 8), (1, 4)):
            remedy.use(degree)
            self.assertEqual((remedy.parts, remedy.degree()), (parts, degree))
            self.assertEqual(remedy.describe(degree), {"parts": parts})
        remedy.arm(1, 1, 3)
        remedy.split.parts[True] = 3
        self.assertEqual(remedy.degrees(GIB), [])  # halves of halves only

    def test_loss_in_parts(self):
        calls, loss = harness.part("losscalls"), harness.part("tuning").Loss()
        state = dict(calls.state)
        self.addCleanup(lambda: (calls.state.clear(), calls.state.update(state)))
        calls.state.update(plain=None, on=False, largest=GIB, least=None)
        self.assertEqual(loss.degrees(0), [])  # not permitted
        calls.state["least"] = GIB // 4
        self.assertEqual((loss.degree(), [held for held, _ in loss.degrees(0)]), (1, [GIB * 7 // 4, 0]))
        loss.use(0)
        self.assertEqual((loss.degree(), len(loss.degrees(0))), (0, 2))
        loss.use(1)
        self.assertEqual(calls.state["least"], GIB // 4)
        calls.state["largest"] = 1 << 20
        self.assertEqual(loss.degrees(0), [])  # too small for parts


class Offloaded(unittest.TestCase):
    def test_fewest_tensors_are_moved(self):
        """The first of a forward are: the backward pass needs the last ones first."""
        harness.rungs()
        part = harness.part("offload")
        room = part.Room(1 << 30, None)
        self.assertEqual([room.take(10, 10) for _ in range(4)], [True] * 4)
        remedy = part.Offload(type("Guard", (), {"given_up": None})())
        remedy.room, remedy.size = room, 1
        held = [held for held, _ in remedy.degrees(0)]
        self.assertEqual((held[0], held[8], held[16], remedy.degree()), (40, 20, 0, 16))
        remedy.use(8)
        room.moved = 0
        self.assertEqual([room.take(10, 10) for _ in range(4)], [True, True, False, False])
        self.assertEqual([held for held, _ in remedy.degrees(0)], held)
        call = type("Call", (), {"remedies": {"offload-activations"}})()
        self.assertEqual(remedy.refusal([call]), "")  # it can be on further
        remedy.use(16)
        room.moved = 0
        self.assertEqual([room.take(10, 10) for _ in range(4)], [True] * 4)


