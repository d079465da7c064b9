# DeepSpeed's builders, of which the one for NVMe lacks its library.
import os
if os.environ.get("FAKE_DEEPSPEED"):
    raise ImportError(os.environ["FAKE_DEEPSPEED"])


class Builder:
    def __init__(self, lacks=""):
        self.lacks = lacks

    def is_compatible(self, verbose):
        if self.lacks:
            print("\x1b[93m [WARNING] \x1b[0m " + self.lacks)
        return not self.lacks


ALL_OPS = {"cpu_adam": Builder(), "fused_adam": Builder(), "async_io": Builder("async_io requires libaio")}
