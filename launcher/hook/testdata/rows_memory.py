# Compares two large outputs in a process that may hold little more than them. Then it asks models with a large
# vocabulary about their rows, where there is memory for the outputs of two rows only.
import resource
import sys

import torch

sys.path.insert(0, sys.argv[1])
from inside.model import rows  # noqa: E402

one = torch.randn(16 << 20)
other = one.clone()
other[-1] += 1e6


def limit(more):
    with open("/proc/self/status") as file:
        data = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + (more << 20), resource.RLIM_INFINITY))


class Words(torch.nn.Module):
    def __init__(self, mixed):
        super().__init__()
        self.words, self.mixed = torch.nn.Embedding(16, 65536), mixed

    def forward(self, x):
        return self.words(x.roll(1, 0) if self.mixed else x)


limit(96)
print(rows.far(one, one, rows.ALIKE), rows.far(one, other, rows.ALIKE), end=" ")
del one, other
plain, mixed, x = Words(False), Words(True), torch.randint(16, (8, 64))
limit(144)
for model in (plain, mixed):
    found = rows.rows_are_independent(model, (x,), {})
    print(found.word, found.reason.partition(":")[0], end=" ")
