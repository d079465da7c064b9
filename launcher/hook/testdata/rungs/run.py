"""Runs the cases of the modules that are named, and prints one line of JSON for each.

Each case, or class of cases that share a run, has a fork of this process: PyTorch is imported once, and what a case leaves behind, such
as the hook's wrappers around functions of PyTorch, does not slow the next one.
"""
import importlib
import json
import os
import sys
import tempfile
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# The launch that these run under is not theirs.
for name in [name for name in os.environ if name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]:
    del os.environ[name]


class Lines(unittest.TestResult):
    def tell(self, test, outcome, words=""):
        name = test.id().split(".", 1)[-1].replace(".", "/")
        print(json.dumps({"case": name, "outcome": outcome, "words": words}), flush=True)

    def addSuccess(self, test):
        self.tell(test, "pass")

    def addSkip(self, test, reason):
        self.tell(test, "skip", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.tell(test, "fail", self._exc_info_to_string(error, test))

    addError = addFailure

    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error is not None:
            self.tell(test, "fail", "%s: %s" % (part.id(), self._exc_info_to_string(error, part)))


def groups(suite):
    """Yields suites of one case, and of all cases of a class that prepares results for them."""
    for part in suite:
        if not isinstance(part, unittest.TestSuite):
            yield unittest.TestSuite([part])
        elif getattr(next(iter(part), None), "together", False):
            yield part
        else:
            yield from groups(part)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    loader = unittest.TestLoader()
    loader.testNamePatterns = ["*%s*" % word for word in sys.argv[2:]] or None
    # The cases import the hook's modules anew, and compile them once for all.
    compiled = tempfile.TemporaryDirectory()
    sys.pycache_prefix, sys.dont_write_bytecode = compiled.name, False
    suite = unittest.TestSuite(loader.loadTestsFromModule(importlib.import_module(name)) for name in sys.argv[1].split(","))
    for group in groups(suite):
        child = os.fork()
        if child == 0:
            name = next(iter(group)).id()
            group.run(Lines())
            print("%s: %.2f s" % (name, time.process_time()), file=sys.stderr)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            Lines().tell(next(iter(group)), "fail", "the process of the case ended with status %d" % status)
