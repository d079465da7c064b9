"""Submits train.toml with submitit, on four nodes. submitit requeues the job when its time ends."""

import os
import signal
import subprocess

import submitit


class Train:
    """Runs gpurun once on each node."""

    def __call__(self):
        self.gpurun = subprocess.Popen(["gpurun", "train.toml"])
        self.wait()
        code = self.gpurun.wait()
        if code:
            raise RuntimeError(f"gpurun ended with {code}")

    def wait(self):
        # Popen.wait would wait for itself: checkpoint interrupts __call__.
        os.waitid(os.P_PID, self.gpurun.pid, os.WEXITED | os.WNOWAIT)

    def checkpoint(self):
        """submitit calls it on the first node. The ranks save, and gpurun ends with 75."""
        self.gpurun.send_signal(signal.SIGUSR1)
        self.wait()
        return submitit.helpers.DelayedSubmission(Train())


if __name__ == "__main__":
    executor = submitit.SlurmExecutor(folder="log")
    executor.update_parameters(nodes=4, ntasks_per_node=1, gpus_per_node=8, time=240, signal_delay_s=300)
    print(executor.submit(Train()).job_id)
