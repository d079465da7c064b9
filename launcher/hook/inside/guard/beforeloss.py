# Before the loss: what the job computes from the root's outputs cannot be repeated. Where they are
# large and little memory is left, the root's forward is done again with less memory, before its
# outputs are handed to the job.
import sys

from ..base import process, room
from ..model import callstate
from ..remedies import losscalls, losspart

NEEDS = 3  # times the outputs' bytes in fp32: what a loss of the job's own needs, with its backward
SMALL = losspart.LEAST // 64  # elements of outputs that are never too large


def foresee(call, output):
    """Return whether a forward pass that ended well is to be done again before its output is handed over."""
    if type(output) is sys.modules["torch"].Tensor and output.numel() < SMALL:
        return False
    return looked(output)


@process.guarded
def looked(output):
    found = [t for t in callstate.tensors_in(output) if t.requires_grad and t.is_floating_point()]
    if not found or any(t.numel() == 1 for t in found):  # the root has computed its loss: its backward pass can be repeated
        return False
    size = sum(map(losspart.size, found))
    if not losspart.is_large(size, found[0].device):
        return False
    free = room.free(found[0].device)
    return free is not None and free < (sum(map(losspart.needs, found)) if losscalls.follows(size) else NEEDS * size)
