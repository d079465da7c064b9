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
uint8 = None


class version:
    cuda, hip = fake.get("cuda"), fake.get("hip")


class _C:
    @staticmethod
    def _cuda_init():
        raise RuntimeError(fake.get("cuda_error", "no CUDA"))


class memory:
    _set_allocator_settings = staticmethod(lambda text: None)


class cuda:
    memory = memory
    device_count = staticmethod(lambda: fake.get("devices", 0))
    is_available = staticmethod(lambda: "cuda_error" not in fake)
    get_arch_list = staticmethod(lambda: fake.get("arch", []))
    mem_get_info = staticmethod(lambda: (64 << 30, 80 << 30))
    memory_snapshot = staticmethod(lambda: [{"is_expandable": fake.get("expandable", True)}])
    set_device = empty_cache = synchronize = set_per_process_memory_fraction = staticmethod(lambda *_: None)


class Tensor:
    held = 0

    def __init__(self, size):
        self.size = size
        Tensor.held += size

    def __del__(self):
        Tensor.held -= self.size


def ones(*_, **__):
    if "broken" in fake:
        raise RuntimeError(fake["broken"])


def empty(size, **_):
    largest = fake.get("pieces", 64 << 30) if Tensor.held == 0 else 64 << 30
    if size > largest or Tensor.held + size > 64 << 30:
        raise RuntimeError("CUDA out of memory")
    return Tensor(size)


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
