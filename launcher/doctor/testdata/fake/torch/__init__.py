# A PyTorch as a test wants it; FAKE_TORCH says how in JSON. No machine has the GPUs,
# drivers and faults that the tests need, and a real PyTorch takes seconds to import.
import json, os, subprocess, sys, time

fake = json.loads(os.environ.get("FAKE_TORCH") or "{}") or {}
if "error" in fake:
    raise OSError(fake["error"])
if "hang" in fake:  # with a child of its own, in a session of its own
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(fake["hang"] + ".new", "w") as f:
        f.write("%d %d" % (os.getpid(), child.pid))
    os.rename(fake["hang"] + ".new", fake["hang"])
    time.sleep(1000)
__version__ = fake.get("version", "2.0.0")


class version:
    cuda, hip = fake.get("cuda"), fake.get("hip")


class _C:
    @staticmethod
    def _cuda_init():
        raise RuntimeError(fake.get("cuda_error", "no CUDA"))


class cuda:
    device_count = staticmethod(lambda: fake.get("devices", 0))
    is_available = staticmethod(lambda: "cuda_error" not in fake)
    get_arch_list = staticmethod(lambda: fake.get("arch", []))
    set_device = synchronize = staticmethod(lambda *_: None)


class numbers(list):
    def __eq__(self, other):
        return self

    def all(self):
        return True

    def zero_(self):
        pass


def full(*_, **__):
    return numbers()


from . import distributed
