# Compares two large outputs in a process that may hold little more than them.
import resource
import sys

import torch

sys.path.insert(0, sys.argv[1])
from inside import rows  # noqa: E402

one = torch.randn(16 << 20)
other = one.clone()
other[-1] += 1e6
with open("/proc/self/status") as file:
    data = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
resource.setrlimit(resource.RLIMIT_DATA, (data + (96 << 20), resource.RLIM_INFINITY))
print(rows.far(one, one, rows.ALIKE), rows.far(one, other, rows.ALIKE))
