"""What is done about an allocator that gives its cache back in step after step."""
import unittest

from harness import part, rungs


class Pressure(unittest.TestCase):
    def setUp(self):
        rungs()
        self.part, self.process = part("pressure"), part("process")

    def steps(self, retries):
        """Makes steps after which the counter is as given; returns how often it was asked for."""
        counter, asked = [0], []

        class Meter:
            @staticmethod
            def now():
                asked.append(1)
                return 0, 0, 0, 0, counter[0]

        part("memory").meter = Meter
        Meter.__new__ = lambda cls: cls
        for n, grown in enumerate(retries, 1):
            counter[0] += grown
            part("session").current.steps = n
            self.part.stepped(n)
        return len(asked)

    def test_reported_once_with_its_figures(self):
        asked = self.steps([7] * 10 + [1] * 90)
        self.assertEqual(self.process.told["pressure"], {"retries": 20, "steps": 20, "step": 30})
        self.assertEqual(asked, 3)  # one look in ten steps, and none once it is known
        self.assertEqual(self.process.state["problems"], [])

    def test_nothing_to_report(self):
        asked = self.steps([9] * 10 + [0] * 90)
        self.assertNotIn("pressure", self.process.told)
        self.assertEqual(asked, 10)

    def test_report_is_saved_at_once(self):
        saved = []
        self.process.save = lambda: saved.append(dict(self.process.told["pressure"]))
        self.steps([7] * 30)
        self.assertEqual(saved, [{"retries": 140, "steps": 20, "step": 30}])

    def test_two_windows_in_a_row(self):
        """By the retries of each ten steps: those that are reported, and up to which step; 0 for none."""
        for windows, want in (
            ([0] * 9, (0, 0)), ([4] * 9, (0, 0)), ([9, 0] * 4, (0, 0)), ([50, 9, 0, 9, 0], (0, 0)), ([0, 5, 5], (10, 30)), ([50, 9, 0, 9, 6, 7], (15, 50)),
        ):
            self.setUp()
            self.steps([n for each in windows for n in [each] + [0] * 9])
            told = self.process.told.pop("pressure", {"retries": 0, "step": 0})
            self.assertEqual((told["retries"], told["step"]), want, windows)

    def test_segments_come_first(self):
        """Where the allocator may use expandable segments, it does, and only what that does not end is reported."""
        for later, want in ((0, None), (1, {"retries": 20, "steps": 20, "step": 50})):
            self.setUp()
            session, expandable, used = part("session").current, part("expandable"), []

            def use():
                expandable.state["tried"], session.allocator = True, "expandable"
                used.append(session.steps)

            expandable.use = use
            self.steps([1] * 30 + [later] * 60)
            self.assertEqual((used, self.process.told.pop("pressure", None)), ([30], want))

    def test_steps_that_were_only_counted_have_no_retries(self):
        self.steps([7] * 10)
        for n in (29, 30, 39, 40):
            self.part.stepped(n)
        self.assertNotIn("pressure", self.process.told)

    def test_the_cpu_has_no_counter(self):
        self.part.stepped(9)
        part("memory").meter = lambda: part("meters").Host()
        self.part.stepped(10)
        self.assertIn("over", self.part.state)
