"""Tests that train.py learns the same however its global batch is cut.

Run as `python3 train_test.py`. Each test starts real ranks over gloo.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SMALL = ["--vocabulary", "512", "--context", "32", "--layers", "2", "--width", "32", "--heads", "4", "--steps", "6"]
# The losses are printed with four decimals; a sum in another order may round otherwise.
ROUNDING = 2e-4


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train(folder, *arguments, ranks=2):
    """Trains with so many ranks and returns {step: loss} as rank 0 prints it."""
    shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(HERE / "train.py"), *SMALL, *arguments]
    processes = [
        subprocess.Popen(command, cwd=folder, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode != 0:
            raise AssertionError(f"exit code {process.returncode}: {errors}")
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", outputs[0][0])}


class TrainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.whole = train(cls.folder, "--micro-batch-size", "8", "--accumulation", "1", "--save-every", "4")

    def assertSameLosses(self, want, got):
        self.assertEqual(list(want), list(got))
        for step in want:
            self.assertAlmostEqual(want[step], got[step], delta=ROUNDING, msg=f"step {step}")

    def test_losses_do_not_depend_on_micro_batch_and_checkpointing(self):
        cut = train(self.folder, "--micro-batch-size", "2", "--accumulation", "4", "--checkpointing", "full")
        self.assertSameLosses(self.whole, cut)

    def test_losses_do_not_depend_on_ranks_and_loader_workers(self):
        alone = train(self.folder, "--micro-batch-size", "16", "--data-workers", "1", ranks=1)
        self.assertSameLosses(self.whole, alone)

    def test_resume_goes_on_where_the_checkpoint_was_taken(self):
        names = sorted(entry.name for entry in (self.folder / "out").iterdir())
        self.assertEqual(names, ["ckpt-4.pt", "ckpt-6.pt"])
        rest = train(self.folder, "--micro-batch-size", "4", "--accumulation", "2", "--resume", "out/ckpt-4.pt")
        self.assertSameLosses({5: self.whole[5], 6: self.whole[6]}, rest)


if __name__ == "__main__":
    unittest.main()
