"""What is done about an allocator that gives its cache back in step after step."""
import unittest

import models
from harness import part, rungs


class Pressure(unittest.TestCase):
    def setUp(self):
        rungs()
        self.part, self.process = part("pressure"), part("process")

    def test_decisions(self):
        """By the retries and the seconds a step of each window, whether recomputation is possible: what is done."""
        for windows, can, want in (
            ([(0, 1.0)] * 9, True, [""] * 9),
            ([(4, 1.0)] * 9, True, [""] * 9),
            ([(9, 1.0), (0, 1.0)] * 4, True, [""] * 8),  # once in a while
            ([(10, 1.0), (10, 1.0), (10, 1.0)], False, ["", "report", ""]),
            ([(10, 1.0), (10, 1.0), (3, 2.0), (0, 0.8), (0, 0.8)], True, ["", "try", "", "keep", ""]),
            ([(10, 1.0), (10, 1.0), (3, 0.5), (0, 0.99), (9, 1.0)], True, ["", "try", "", "undo", ""]),  # no faster
            ([(10, 1.0), (10, 1.0), (3, 0.5), (5, 0.5), (9, 1.0), (9, 1.0)], True, ["", "try", "", "undo", "", ""]),  # not ended
        ):
            watch = self.part.Watch()
            self.assertEqual([watch.window(retries, seconds, lambda: can) for retries, seconds in windows], want)

    def steps(self, retries, seconds, guard=None):
        """Makes steps after which the counter is as given, each of which takes so long."""
        now = [100.0]
        self.part.time = type("Clock", (), {"monotonic": staticmethod(lambda: now[0])})
        counter, asked = [0], []

        class Meter:
            @staticmethod
            def now():
                asked.append(1)
                return 0, 0, 0, 0, counter[0]

        part("memory").meter = Meter
        Meter.__new__ = lambda cls: cls
        part("session").current.guard = None
        if guard is not None:
            part("session").current.guard = guard
        for n, (grown, took) in enumerate(zip(retries, seconds), 1):
            counter[0] += grown
            now[0] += took
            part("session").current.steps = n
            self.part.stepped(n)
        return len(asked)

    def test_reported_once_with_its_figures(self):
        asked = self.steps([7] * 10 + [1] * 90, [0.5] * 100)
        self.assertEqual(self.process.told["pressure"], {"retries": 20, "steps": 20, "step": 30})
        self.assertEqual(asked, 3)  # one look in ten steps, and none once it is known
        self.assertEqual(self.process.state["problems"], [])

    def test_nothing_to_report(self):
        asked = self.steps([9] * 10 + [0] * 90, [0.5] * 100)
        self.assertNotIn("pressure", self.process.told)
        self.assertEqual(asked, 10)

    def guard(self):
        self.model = models.GPT()
        guard = part("inplace").Guard(self.model, {"rungs": ["checkpointing"]})
        guard.largest = (80, 20)
        return guard

    def test_recomputation_is_kept_where_it_ends_it_and_is_faster(self):
        guard = self.guard()
        self.steps([1] * 30 + [0] * 40, [0.5] * 30 + [0.3] * 40, guard)
        told = self.process.told["pressure"]
        self.assertEqual({k: told[k] for k in ("tried", "kept", "retries", "steps", "step")}, {"tried": "checkpointing", "kept": True, "retries": 20, "steps": 20, "step": 30})
        self.assertAlmostEqual(told["before_seconds"], 0.5)
        self.assertAlmostEqual(told["after_seconds"], 0.3)
        remedy, = guard.remedies
        for size, longest, on in ((80, 20, True), (79, 19, False), (81, 1, True)):
            remedy.begins(size, longest)
            self.assertEqual(remedy.active, on)

    def test_recomputation_is_undone_where_it_is_slower(self):
        guard = self.guard()
        self.steps([1] * 30 + [0] * 40, [0.5] * 30 + [0.6] * 40, guard)
        self.assertFalse(self.process.told["pressure"]["kept"])
        remedy, = guard.remedies
        remedy.begins(1 << 40, 1 << 40)
        self.assertFalse(remedy.active)

    def test_nothing_is_tried_without_permission(self):
        self.model = models.Plain()  # it has no blocks
        guard = part("inplace").Guard(self.model, {"rungs": ["checkpointing"]})
        guard.largest = (80, 20)
        self.steps([1] * 60, [0.5] * 60, guard)
        self.assertNotIn("tried", self.process.told["pressure"])

    def test_nothing_is_tried_where_no_step_may_be_repeated(self):
        guard = self.guard()
        guard.barred = "the model is a part of a pipeline"
        self.steps([1] * 60, [0.5] * 60, guard)
        self.assertNotIn("tried", self.process.told["pressure"])

    def test_report_is_saved_at_once(self):
        saved = []
        self.process.save = lambda: saved.append(dict(self.process.told["pressure"]))
        self.steps([7] * 30, [0.5] * 30)
        self.assertEqual(saved, [{"retries": 140, "steps": 20, "step": 30}])

    def test_time_over_steps_that_were_not_seen_is_no_step(self):
        for n in (11, 12, 15, 16):
            self.part.stepped(n)
        self.assertEqual(len(self.part.state["times"]), 1)

    def test_the_cpu_has_no_counter(self):
        self.part.stepped(9)
        part("memory").meter = lambda: part("meters").Host()
        self.part.stepped(10)
        self.assertIn("over", self.part.state)
